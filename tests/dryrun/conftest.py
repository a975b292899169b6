"""What several tests of this folder share lies beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
