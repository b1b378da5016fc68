package membership

import "time"

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
