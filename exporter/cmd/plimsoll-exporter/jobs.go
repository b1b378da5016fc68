package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// jobMap reads which jobs of a batch system, such as Slurm, have which device: its
// prolog writes a file named by the device's number, a job on each line.
type jobMap struct {
	folder string
	log    *slog.Logger
	said   string // the last fault, which is told once
}

// of a device; a MIG instance has its device's.
func (m *jobMap) of(d device.Device) []string {
	text, err := os.ReadFile(filepath.Join(m.folder, strconv.Itoa(d.Index)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && err.Error() != m.said {
		m.said = err.Error()
		m.log.Warn("which jobs have a device can't be read", "err", err)
	}
	var jobs []string
	for line := range strings.Lines(string(text)) {
		if job := strings.TrimSpace(line); job != "" {
			jobs = append(jobs, job)
		}
	}
	return jobs
}
