package dispatch

import "time"

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func after(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
