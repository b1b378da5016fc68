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

// maxJobFileSize is the number of bytes that are read of a job file.
const maxJobFileSize = 64 << 10

// jobMap reads the jobs of a batch system, such as Slurm, that use a device. The prolog of
// the batch system writes a file for each device, named by the number of the device, with
// a job on each line.
//
// The directory is often on a file server. If a read exceeds the deadline, no device has
// a job until the read returns, so that a hung file server delays only one collection.
type jobMap struct {
	directory string
	deadline  time.Duration
	log       *slog.Logger
	lastError string       // logged last; the same error is logged once
	pending   chan jobFile // a read that exceeded the deadline
}

// jobFile is the result of reading a job file.
type jobFile struct {
	text string
	err  error
}

// jobsOf returns the jobs of a device, each once. The file of a MIG instance is named
// <device>.<GPU instance>.
func (m *jobMap) jobsOf(d device.Device) []string {
	if m.pending != nil && len(m.pending) == 0 {
		return nil
	}
	name := strconv.Itoa(d.Index)
	if d.Instance != nil {
		name += "." + strconv.Itoa(d.Instance.GI)
	}
	file := m.read(filepath.Join(m.directory, name))
	if err := file.err; err != nil {
		if !errors.Is(err, fs.ErrNotExist) && err.Error() != m.lastError {
			m.lastError = err.Error()
			m.log.Warn("cannot read the jobs of a device", "err", err)
		}
		return nil
	}
	var jobs []string
	seen := map[string]bool{"": true}
	for line := range strings.Lines(file.text) {
		if job := strings.TrimSpace(line); !seen[job] {
			seen[job] = true
			jobs = append(jobs, job)
		}
	}
	return jobs
}

func (m *jobMap) read(path string) jobFile {
	m.pending = make(chan jobFile, 1)
	go func(done chan<- jobFile) { done <- readJobFile(path) }(m.pending)
	timer := time.NewTimer(m.deadline)
	defer timer.Stop()
	select {
	case file := <-m.pending:
		m.pending = nil
		return file
	case <-timer.C:
		return jobFile{err: fmt.Errorf("reading %s exceeds %s; check its file server", path, m.deadline)}
	}
}

func readJobFile(path string) jobFile {
	f, err := os.Open(path)
	if err != nil {
		return jobFile{err: err}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxJobFileSize))
	return jobFile{string(text), err}
}
