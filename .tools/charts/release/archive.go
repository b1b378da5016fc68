package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
)

// entry is a file of an archive.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// writeArchive writes a compressed archive. The same entries give the same bytes.
func (o options) writeArchive(name string, entries []entry) error {
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	w := tar.NewWriter(compressed)
	for _, e := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: o.time(), Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := compressed.Close(); err != nil {
		return err
	}
	return o.write(name, archive.Bytes())
}
