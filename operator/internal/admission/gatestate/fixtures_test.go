package gatestate

import "time"

// noon is the time at which every test starts.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
