"""What Nexmark's queries give of everything that has arrived, in DuckDB's SQL.

Of windows, those count that are over by `closed_at`. What Nexmark leaves open among equal rows is said here as well.
"""

from __future__ import annotations

from collections.abc import Mapping

_CLOSED = "getvariable('closed_at')"
_TUMBLING = "time_bucket(INTERVAL 10 SECONDS, dateTime)"

ANSWERS: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bids",
    "q1": "SELECT auction, bidder, (0.908 * price)::DECIMAL(23, 3), dateTime, extra FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE auction % 123 = 0",
    "q3": """
        SELECT P.name, P.city, P.state, A.id FROM auctions AS A JOIN people AS P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
    """,
    "q5": f"""
        WITH counted AS (
            SELECT auction, time_bucket(INTERVAL 2 SECONDS, dateTime) - n::INTEGER * INTERVAL 2 SECONDS AS start,
                count(*) AS num
            FROM bids, range(5) AS steps(n) GROUP BY ALL
        ),
        highest AS (SELECT start, max(num) AS maxn FROM counted GROUP BY start)
        SELECT start, auction, num FROM counted JOIN highest USING (start)
        WHERE num >= maxn AND start + INTERVAL 10 SECONDS <= {_CLOSED}
    """,
    "q7": f"""
        WITH highest AS (
            SELECT {_TUMBLING} + INTERVAL 10 SECONDS AS ends, max(price) AS maxprice FROM bids GROUP BY ALL
        )
        SELECT auction, bidder, price, dateTime, extra FROM bids JOIN highest
            ON price = maxprice AND dateTime BETWEEN ends - INTERVAL 10 SECONDS AND ends
        WHERE ends <= {_CLOSED}
    """,
    "q8": f"""
        WITH came AS (SELECT DISTINCT id, name, {_TUMBLING} AS start FROM people),
        sold AS (SELECT DISTINCT seller, {_TUMBLING} AS start FROM auctions)
        SELECT id, name, came.start FROM came JOIN sold ON id = seller AND came.start = sold.start
        WHERE came.start + INTERVAL 10 SECONDS <= {_CLOSED}
    """,
    "q11": f"""
        WITH begun AS (
            SELECT bidder, dateTime,
                lag(dateTime, 1, dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) AS before
            FROM bids
        ),
        numbered AS (
            SELECT bidder, dateTime,
                count(*) FILTER (dateTime - before > INTERVAL 10 SECONDS)
                    OVER (PARTITION BY bidder ORDER BY dateTime ROWS UNBOUNDED PRECEDING) AS session
            FROM begun
        )
        SELECT bidder, count(*), min(dateTime), max(dateTime) + INTERVAL 10 SECONDS FROM numbered
        GROUP BY bidder, session HAVING max(dateTime) + INTERVAL 10 SECONDS <= {_CLOSED}
    """,
    "q12": f"""
        SELECT bidder, count(*), {_TUMBLING} AS start, start + INTERVAL 10 SECONDS FROM bids
        GROUP BY bidder, start HAVING start + INTERVAL 10 SECONDS <= {_CLOSED}
    """,
    "q13": "SELECT auction, bidder, price, dateTime, value FROM bids JOIN side_input ON auction % 10000 = key",
    "q17": """
        SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day, count(*), count(*) FILTER (price < 10000),
            count(*) FILTER (price >= 10000 AND price < 1000000), count(*) FILTER (price >= 1000000),
            min(price), max(price), sum(price)::BIGINT // count(*), sum(price)::BIGINT
        FROM bids GROUP BY auction, day
    """,
    "q18": """
        SELECT auction, bidder, price, channel, url, dateTime, extra FROM bids
        QUALIFY row_number() OVER (
            PARTITION BY bidder, auction ORDER BY dateTime DESC, channel DESC, extra DESC, price DESC, url DESC
        ) = 1
    """,
    "q19": """
        SELECT *, row_number() OVER (
            PARTITION BY auction ORDER BY price DESC, dateTime, bidder, channel, url, extra
        ) AS rank_number FROM bids QUALIFY rank_number <= 10
    """,
    "q20": """
        SELECT auction, bidder, price, channel, url, B.dateTime, B.extra, itemName, description, initialBid, reserve,
            A.dateTime, expires, seller, category, A.extra
        FROM bids AS B JOIN auctions AS A ON B.auction = A.id WHERE A.category = 10
    """,
}
"""By query."""
