package chromium

import (
	"cmp"
	"image"
	"image/color"
	"maps"
	"slices"
)

// paletteOf returns the 256 most frequent colors of a picture, after rounding. Pictures of
// dashboards have few colors, and become a third as large.
func paletteOf(picture image.Image) color.Palette {
	count := map[color.RGBA]int{}
	b := picture.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, blue, _ := picture.At(x, y).RGBA()
			count[color.RGBA{round(r), round(g), round(blue), 255}]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) })
	var p color.Palette
	for _, c := range colors[:min(len(colors), 256)] {
		p = append(p, c)
	}
	return p
}

// round keeps six bits of a channel of 16 bits.
func round(channel uint32) uint8 { return uint8(channel>>8) &^ 3 }
