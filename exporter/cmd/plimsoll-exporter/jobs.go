package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// maxJobs is how much of a file is read.
const maxJobs = 64 << 10

// jobMap reads which jobs of a batch system, such as Slurm, have which device: its
// prolog writes a file named by the device's number, a job on each line. The folder
// is often on a file server: one that does not answer costs the deadline once, and
// until it does no device has a job.
type jobMap struct {
	folder   string
	deadline time.Duration
	log      *slog.Logger
	said     string      // the last fault, which is told once
	pending  chan jobsOf // a reading past its deadline
}

type jobsOf struct {
	text string
	err  error
}

// of a device; a MIG instance has those of the file <device>.<GPU instance>.
func (m *jobMap) of(d device.Device) []string {
	if m.pending != nil && len(m.pending) == 0 {
		return nil
	}
	name := strconv.Itoa(d.Index)
	if d.Instance != nil {
		name += "." + strconv.Itoa(d.Instance.GI)
	}
	read := m.read(filepath.Join(m.folder, name))
	if err := read.err; err != nil && !errors.Is(err, fs.ErrNotExist) && err.Error() != m.said {
		m.said = err.Error()
		m.log.Warn("which jobs have a device can't be read", "err", err)
	}
	var jobs []string
	for line := range strings.Lines(read.text) {
		if job := strings.TrimSpace(line); job != "" {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

func (m *jobMap) read(path string) jobsOf {
	m.pending = make(chan jobsOf, 1)
	go func(done chan<- jobsOf) { done <- readJobs(path) }(m.pending)
	late := time.NewTimer(m.deadline)
	defer late.Stop()
	select {
	case read := <-m.pending:
		m.pending = nil
		return read
	case <-late.C:
		return jobsOf{err: fmt.Errorf("%s is not read within %s: does its file server answer?", path, m.deadline)}
	}
}

func readJobs(path string) jobsOf {
	f, err := os.Open(path)
	if err != nil {
		return jobsOf{err: err}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxJobs))
	return jobsOf{string(text), err}
}
