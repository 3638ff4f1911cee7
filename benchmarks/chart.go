package main

import (
	"image/color"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// charts are the files and titles of those benchmarks whose processor time is drawn against
// the number of pending timers.
var charts = map[string][2]string{
	"AddCancel":    {"cost.svg", "An add and its cancel, by the number of pending timers"},
	"CancelRandom": {"cost-random.svg", "A cancel at random and an add, by the number of pending timers"},
}

// The colors are those of Okabe and Ito, which people with any of the common color blindnesses
// can tell apart.
var colors = []color.Color{
	color.Black, rgb(0x0072B2), rgb(0x56B4E9), rgb(0xE69F00), rgb(0xD55E00), rgb(0x009E73), rgb(0xCC79A7), color.Gray{128},
}

func rgb(v uint32) color.Color {
	return color.RGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 255}
}

// chart draws the benchmark into a folder. A subject that goes far beyond the first would
// leave no room for the differences of the others: the title names it instead.
func (b *benchmark) chart(folder, file, title string) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.BackgroundColor = color.White
	p.X.Label.Text, p.Y.Label.Text = "pending timers", "ns of processor time"
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.ConstantTicks(b.ticks())
	p.Y.Min = 0
	p.Legend.Left, p.Legend.Top = true, true
	p.Add(plotter.NewGrid())
	var beyond []string
	limit, drawn := 0.0, 0
	for _, s := range b.subjects {
		points, most := b.points(s)
		if limit == 0 {
			limit = 2.5 * most
		}
		if most > limit {
			beyond = append(beyond, s)
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Width, marks.Shape = vg.Points(2), draw.CircleGlyph{}
		line.Color, marks.Color = colors[drawn%len(colors)], colors[drawn%len(colors)]
		p.Add(line, marks)
		p.Legend.Add(s, line)
		drawn++
		p.Y.Max = max(p.Y.Max, 1.5*most) // with room for the legend
	}
	p.Title.Text = title
	if len(beyond) > 0 {
		p.Title.Text += "\nbeyond the axis: " + strings.Join(beyond, ", ")
	}
	return p.Save(7*vg.Inch, 4.5*vg.Inch, filepath.Join(folder, file))
}

// leftEnd is where nothing pending stands, which has no place on a logarithmic axis.
const leftEnd = 1000

func (b *benchmark) points(subject string) (points plotter.XYs, most float64) {
	for _, config := range b.configs {
		if y, _, ok := b.medianOf(figure{config, subject, "cpu-ns/op"}); ok {
			points = append(points, plotter.XY{X: pendingOf(config), Y: y})
			most = max(most, y)
		}
	}
	return points, most
}

func (b *benchmark) ticks() (ticks []plot.Tick) {
	for _, config := range b.configs {
		ticks = append(ticks, plot.Tick{Value: pendingOf(config), Label: strings.TrimPrefix(config, "pending=")})
	}
	return ticks
}

func pendingOf(config string) float64 {
	n, _ := parseCount(strings.TrimPrefix(config, "pending="))
	return float64(max(n, leftEnd))
}
