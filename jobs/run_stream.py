"""What `spark-submit` runs in this project; the code is the library's."""

import sys

from sluice.running.submit import main

sys.exit(main())
