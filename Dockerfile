# One image for all services: Airflow's components, the Spark driver, Spark's master and its workers.
# So Python, Spark, the jars and the project are the same everywhere.
FROM python:3.11.14-slim-bookworm

# The slim image leaves out the folder of manual pages, into which Java's package links.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    AIRFLOW_HOME=/opt/airflow \
    SLUICE_PROJECT=/opt/sluice \
    SLUICE_JARS=/opt/sluice-jars \
    SLUICE_PROFILES=/opt/sluice-profiles \
    PYTHONPATH=/opt/sluice

WORKDIR /opt/sluice

# What changes seldom comes first. The lock file is complete, so nothing is resolved here.
COPY requirements.txt ./
RUN pip install --no-deps --require-hashes --requirement requirements.txt

COPY . ./
RUN pip install --no-deps --no-build-isolation . \
    && sluice jars fetch \
    && sluice profile build

# A named volume takes over the owner of the folder that it covers.
RUN useradd --uid 50000 --create-home sluice \
    && install -d -o sluice -g sluice -m 0750 \
        /opt/airflow /opt/airflow/auth /opt/airflow/logs \
        /opt/sluice/var /opt/sluice/var/sluice \
        /opt/sluice/data /opt/sluice/data/landing /opt/sluice/data/landing/flights /opt/sluice/data/lake

USER sluice
