package collector

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"sync"
	"time"
)

// snapshot never changes once it is stored. Each of its encodings is made when it
// is first asked for, and handed to every further scrape.
type snapshot struct {
	at       time.Time
	plain    map[*dialect]func() []byte
	deflated map[*dialect]func() deflated
}

// deflated is the beginning of a gzip stream, which more can follow.
type deflated struct {
	bytes []byte
	sum   uint32 // of what was deflated
	size  int    // of what was deflated
}

func newSnapshot(families []*family, at time.Time) *snapshot {
	s := &snapshot{at: at, plain: map[*dialect]func() []byte{}, deflated: map[*dialect]func() deflated{}}
	for _, d := range []*dialect{plainText, openMetrics} {
		s.plain[d] = sync.OnceValue(func() []byte {
			var b bytes.Buffer
			d.write(&b, families)
			return b.Bytes()
		})
		s.deflated[d] = sync.OnceValue(func() deflated { return deflate(s.plain[d]()) })
	}
	return s
}

// gzipHeader says deflate, no name and no time, fastest, from no particular system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255}

var compressors = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is one that there is
	}
	return w
}}

// deflate text so that its last block is not the stream's last.
func deflate(text []byte) deflated {
	var b bytes.Buffer
	b.Write(gzipHeader)
	compress(&b, text, (*flate.Writer).Flush)
	return deflated{b.Bytes(), crc32.ChecksumIEEE(text), len(text)}
}

// end of the stream: what is left to say, and the sum and size of all.
func (d deflated) end(text []byte) []byte {
	var b bytes.Buffer
	compress(&b, text, (*flate.Writer).Close)
	out := binary.LittleEndian.AppendUint32(b.Bytes(), crc32.Update(d.sum, crc32.IEEETable, text))
	return binary.LittleEndian.AppendUint32(out, uint32(d.size+len(text)))
}

func compress(b *bytes.Buffer, text []byte, finish func(*flate.Writer) error) {
	w := compressors.Get().(*flate.Writer)
	defer compressors.Put(w)
	w.Reset(b)
	_, err := w.Write(text)
	if err == nil {
		err = finish(w)
	}
	if err != nil {
		panic(err) // a buffer takes everything
	}
}
