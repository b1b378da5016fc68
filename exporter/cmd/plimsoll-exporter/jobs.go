package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// maxJobFileSize is the number of bytes that are read of a job file.
const maxJobFileSize = 64 << 10

// jobMap reads the jobs of a batch system, such as Slurm, that use a device. The prolog of
// the batch system writes a file for each device, named by the number of the device, with
// a job on each line.
//
// The directory is often on a file server. All files are read at the same time. If one of
// them exceeds the deadline, no device has a job until the read returns, so that a hung file
// server delays only one collection.
type jobMap struct {
	directory string
	deadline  time.Duration // of all files together
	log       *slog.Logger
	read      func(path string) (string, error)

	mu        sync.Mutex     // guards the fields below; the vendors collect at the same time
	lastError string         // logged last; the same error is logged once
	pending   chan []jobFile // a read that exceeded the deadline
}

func newJobMap(directory string, log *slog.Logger) *jobMap {
	return &jobMap{directory: directory, deadline: time.Second, log: log, read: readJobFile}
}

// jobFile is the result of reading the job file of a device.
type jobFile struct {
	uuid, text string
	err        error
}

// jobsOf returns the jobs of devices by UUID, each job once. Devices without a job are not in
// the result.
func (m *jobMap) jobsOf(devices []device.Device) map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	files, err := m.readFiles(devices)
	failures := []error{err}
	jobs := map[string][]string{}
	for _, file := range files {
		if file.err != nil && !errors.Is(file.err, fs.ErrNotExist) {
			failures = append(failures, file.err)
		}
		if names := parseJobs(file.text); len(names) > 0 {
			jobs[file.uuid] = names
		}
	}
	m.report(errors.Join(failures...))
	return jobs
}

// readFiles reads the files of devices. It returns none while an earlier read has not returned.
func (m *jobMap) readFiles(devices []device.Device) ([]jobFile, error) {
	hung := fmt.Errorf("reading the files in %s exceeds %s; check its file server", m.directory, m.deadline)
	if m.pending != nil {
		select {
		case <-m.pending: // the late content is old
		default:
			return nil, hung
		}
	}
	m.pending = make(chan []jobFile, 1)
	go func(read func(string) (string, error), done chan<- []jobFile) {
		files := make([]jobFile, len(devices))
		var all sync.WaitGroup
		for i, d := range devices {
			all.Go(func() {
				text, err := read(filepath.Join(m.directory, jobFileName(d)))
				files[i] = jobFile{d.UUID, text, err}
			})
		}
		all.Wait()
		done <- files
	}(m.read, m.pending)
	timer := time.NewTimer(m.deadline)
	defer timer.Stop()
	select {
	case files := <-m.pending:
		m.pending = nil
		return files, nil
	case <-timer.C:
		return nil, hung
	}
}

// report logs an error when it starts or changes.
func (m *jobMap) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != m.lastError {
		m.log.Warn("cannot read the jobs of all devices", "err", err)
	}
	m.lastError = text
}

// jobFileName returns the name of a device's file. That of a MIG instance is
// <device>.<GPU instance>.
func jobFileName(d device.Device) string {
	name := strconv.Itoa(d.Index)
	if d.Instance != nil {
		name += "." + strconv.Itoa(d.Instance.GI)
	}
	return name
}

// parseJobs returns the lines of a job file that are not empty, each once.
func parseJobs(text string) (jobs []string) {
	seen := map[string]bool{"": true}
	for line := range strings.Lines(text) {
		if job := strings.TrimSpace(line); !seen[job] {
			seen[job] = true
			jobs = append(jobs, job)
		}
	}
	return jobs
}

func readJobFile(path string) (string, error) {
	f, err := openRegularFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxJobFileSize))
	return string(text), err
}
