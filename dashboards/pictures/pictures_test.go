package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestDemoPictureIsCurrent fails if a source of the picture changed after `make pictures`.
func TestDemoPictureIsCurrent(t *testing.T) {
	picture, err := os.ReadFile("demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	want, err := hashFiles(root, demoSources)
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`<!-- sources: (\w+) -->`).FindSubmatch(picture); m == nil || string(m[1]) != want {
		t.Errorf("demo.svg was drawn from other sources than %v: run make pictures", demoSources)
	}
}

func TestFitPictureIsCurrent(t *testing.T) {
	picture, err := os.ReadFile("fit.svg")
	if err != nil {
		t.Fatal(err)
	}
	want, err := drawScript(root)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(picture, want) {
		t.Errorf("fit.svg does not show %s: run make pictures", fitScript)
	}
}

// TestArchitecturePictureNamesWhatExists compares the names in the picture with the
// architecture document.
func TestArchitecturePictureNamesWhatExists(t *testing.T) {
	document, err := os.ReadFile(root + "/operator/docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile("architecture.svg")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`class="name"[^>]*>([^<]+)<`).FindAllStringSubmatch(string(picture), -1)
	if len(names) < 8 {
		t.Fatalf("the picture has %d names", len(names))
	}
	for _, n := range names {
		if !strings.Contains(strings.ToLower(string(document)), strings.ToLower(n[1])) {
			t.Errorf("the picture shows %q, which operator/docs/architecture.md does not mention", n[1])
		}
	}
}

func TestPicturesAreXML(t *testing.T) {
	for _, file := range []string{"demo.svg", "fit.svg", "architecture.svg"} {
		picture, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = picture.Close() }()
		for decoder := xml.NewDecoder(picture); ; {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
}

func TestTerminalWrapsAndEscapes(t *testing.T) {
	output := "lab: building x\n      " + strings.Repeat("word ", 40) + "\n      a <b> -> c\n"
	picture := string(drawTerminal("demo", "$ make demo\n"+output, "0"))
	for _, want := range []string{"$ make demo", "a &lt;b&gt; -&gt; c", `class="good"`} {
		if !strings.Contains(picture, want) {
			t.Errorf("%q is missing from:\n%s", want, picture)
		}
	}
	if strings.Contains(picture, "building") {
		t.Error("the picture shows the progress of builds")
	}
	for _, line := range visibleLines(output) {
		if len(line) > columns {
			t.Errorf("a line has %d columns: %q", len(line), line)
		}
	}
}
