package report

import (
	"bytes"
	"fmt"
	"image/color"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
	"github.com/tickwheel/tickwheel/benchmarks/internal/workload"
)

// Chart is a chart that was written.
type Chart struct {
	File     string
	Title    string
	Note     string // a line below the title
	Workload string // whose section shows it
}

// look is how a subject looks in every chart on a light page. The colours are those of
// Okabe and Ito, which people with any of the common colour blindnesses can tell apart;
// the inline rows have the colour of their sisters, dashed, and the precise one dotted.
type look struct {
	color  color.Color
	dashes []vg.Length
}

var (
	dashed = []vg.Length{vg.Points(4), vg.Points(3)}
	dotted = []vg.Length{vg.Points(1), vg.Points(2)}
	looks  = map[string]look{
		subject.Baseline:        {color: color.Black},
		"wheel.Schedule":        {color: rgb(0x0072B2)},
		"wheel.Schedule+Inline": {color: rgb(0x0072B2), dashes: dashed},
		"wheel.Schedule+Precise": {
			color: rgb(0x0072B2), dashes: dotted,
		},
		"wheel.AfterFunc": {color: rgb(0x56B4E9)},
		"wheel.AfterFunc+Inline": {
			color: rgb(0x56B4E9), dashes: dashed,
		},
		"RussellLuo": {color: rgb(0xE69F00)},
		"go-zero":    {color: rgb(0x009E73)},
		"gost":       {color: rgb(0xCC79A7)},
		"heap":       {color: rgb(0xD55E00)},
	}
)

func rgb(v uint32) color.Color {
	return color.RGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 255}
}

// Charts draws what there are results for, as SVG files in dir.
func Charts(set *result.Set, size workload.Size, dir string) ([]Chart, error) {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	var charts []Chart
	for _, d := range drawings(set, size) {
		if d.plot == nil {
			continue
		}
		if err := d.save(filepath.Join(dir, d.File)); err != nil {
			return nil, fmt.Errorf("%s: %w", d.File, err)
		}
		charts = append(charts, d.Chart)
	}
	return charts, nil
}

// drawing is a chart with its plot, nil if there are no results for it. Its legend
// stands beside the plot, where it covers nothing, and its title above both.
type drawing struct {
	Chart
	plot      *plot.Plot
	legend    plot.Legend
	hasLegend bool
}

const (
	chartWidth  = 8 * vg.Inch
	chartHeight = 4.5 * vg.Inch
	legendWidth = 2 * vg.Inch
	margin      = vg.Length(10)
	titleSize   = vg.Length(13)
	noteSize    = vg.Length(10)
)

// The colours of all but the subjects, on a light page.
var (
	paper = color.White
	faint = color.Gray{225} // the grid
	quiet = color.Gray{110} // notes
)

func (d drawing) save(file string) error {
	canvas := vgsvg.New(chartWidth, chartHeight)
	area := draw.New(canvas)
	area.FillPolygon(paper, []vg.Point{{}, {Y: chartHeight}, {X: chartWidth, Y: chartHeight}, {X: chartWidth}})
	area = d.drawTitle(draw.Crop(area, margin, -margin, margin, -margin))
	left := area
	if d.hasLegend {
		left = draw.Crop(area, 0, -legendWidth, 0, 0)
		d.legend.Top, d.legend.Left = true, true
		d.legend.Draw(draw.Crop(area, left.Size().X+margin, 0, 0, 0))
	}
	d.plot.Draw(left)
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	return os.WriteFile(file, forReaders(svg.Bytes()), 0o644)
}

// drawTitle draws the title and the note over the whole width, and returns what is left
// below them.
func (d drawing) drawTitle(area draw.Canvas) draw.Canvas {
	style := d.plot.Title.TextStyle
	style.XAlign, style.YAlign = draw.XLeft, draw.YTop
	for _, line := range []struct {
		text  string
		size  vg.Length
		color color.Color
	}{{d.Title, titleSize, color.Black}, {d.Note, noteSize, quiet}} {
		if line.text != "" {
			style.Font.Size, style.Color = line.size, line.color
			area.FillText(style, vg.Point{X: area.Min.X, Y: area.Max.Y}, line.text)
			area = draw.Crop(area, 0, 0, 0, -line.size*3/2)
		}
	}
	return draw.Crop(area, 0, 0, 0, -margin/2)
}

// forReaders makes of what the library writes what all readers can read.
func forReaders(svg []byte) []byte {
	svg = fontFamily.ReplaceAll(svg, []byte(fonts))
	return bytes.Replace(svg, []byte("<g transform"), []byte(darkStyle()+"<g transform"), 1)
}

// The text is laid out with Liberation Sans, which few readers have. Arial has the
// same widths.
var fontFamily = regexp.MustCompile(`font-family:[^;"]*`)

const fonts = "font-family:Liberation Sans,Arial,Helvetica,sans-serif"

// dark are the colours on a dark page, for those of a light one that are not as good
// there. Black is the colour that the library leaves out.
var dark = map[string]string{
	"FFFFFF": "0D1117", "000000": "E6EDF3", "E1E1E1": "30363D", "6E6E6E": "9DA7B3", "828282": "8B949E",
	"0072B2": "3B9AE0", "56B4E9": "A5DCFF", "009E73": "2BC196",
}

// darkStyle is a style sheet that readers who prefer dark pages apply. The others, and
// programs that know nothing of it, see the colours of the drawing. Both have their own
// paper, so that either can be read on any page.
func darkStyle() string {
	var b strings.Builder
	b.WriteString("<style>@media (prefers-color-scheme: dark) {\n")
	fmt.Fprintf(&b, "svg { fill: #%s }\n", dark["000000"])
	for _, light := range slices.Sorted(maps.Keys(dark)) {
		for _, property := range []string{"fill", "stroke"} {
			fmt.Fprintf(&b, "[style*=\"%s:#%s\"] { %s: #%s !important }\n", property, light, property, dark[light])
		}
	}
	b.WriteString("}</style>\n")
	return b.String()
}

func drawings(set *result.Set, size workload.Size) []drawing {
	sizes := map[workload.Size]int{workload.Full: 1_000_000, workload.Quick: 200_000, workload.Tiny: 1000}
	fires := workload.Count(int(mostTimers(set, workload.Fire, workload.FireSpread)))
	return []drawing{
		costChart(set),
		latenessChart(set),
		barChart(set, Chart{
			File: "bytes.svg", Title: "Memory of each pending timer", Note: "All share one function.", Workload: workload.Memory,
		}, workload.PendingShared(sizes[size]), "B/timer", "bytes", 0),
		barChart(set, Chart{
			File: "last.svg", Title: "How late the last of " + fires + " tasks has run, due within a second", Workload: workload.Fire,
		}, workload.FireSpread, "last-ms", "ms after its deadline, logarithmic", 0.1),
		barChart(set, Chart{
			File: "last-tick.svg", Title: "How late the last of " + fires + " tasks has run, all due at the same moment",
			Workload: workload.Fire,
		}, workload.FireTick, "last-ms", "ms after their deadline, logarithmic", 1),
		barChart(set, Chart{
			File: "goroutines.svg", Title: "Goroutines at the most", Note: fires + " empty tasks are due at the same moment.",
			Workload: workload.Fire,
		}, workload.FireTick, "goroutines", "goroutines, logarithmic", 1),
	}
}

// median returns the median over the rounds, and false if there is none.
func median(set *result.Set, k result.Key, unit string) (float64, bool) {
	rounds := set.Rounds(k, unit)
	return result.Median(slices.Collect(maps.Values(rounds))), len(rounds) > 0
}

// line adds the points to the plot and the legend, in the look of the subject.
func (d *drawing) line(name string, points plotter.XYs, marks bool) {
	if len(points) == 0 {
		return
	}
	l, _ := plotter.NewLine(points)
	l.Color, l.Dashes, l.Width = looks[name].color, looks[name].dashes, vg.Points(2)
	if name == subject.Baseline {
		l.Width = vg.Points(4) // so that it shows below one of the same course
	}
	d.plot.Add(l)
	d.legend.Add(name, l)
	d.hasLegend = true
	if marks {
		s, _ := plotter.NewScatter(points)
		s.Color, s.Shape, s.Radius = looks[name].color, draw.CircleGlyph{}, vg.Points(3)
		d.plot.Add(s)
	}
}

func newDrawing(c Chart, x, y string) drawing {
	d := drawing{Chart: c, plot: plot.New(), legend: plot.NewLegend()}
	d.plot.X.Label.Text, d.plot.Y.Label.Text = x, y
	d.plot.X.Padding, d.plot.Y.Padding = vg.Points(4), vg.Points(4)
	d.legend.TextStyle.Font.Size = vg.Points(10)
	d.legend.Padding = vg.Points(3)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	d.plot.Add(grid)
	return d
}

// costChart is the cost of an add and a cancel against what is pending. Nothing
// pending has no place on a logarithmic axis; it stands at the left end.
func costChart(set *result.Set) drawing {
	const leftEnd = 1000.0
	d := newDrawing(Chart{
		File: "cost.svg", Title: "Cost of an add and a cancel, by the number of pending timers", Workload: workload.AddCancel,
	}, "pending timers", "ns for an add and a cancel")
	bySubject := map[string]plotter.XYs{}
	sizes := map[float64]string{}
	for _, l := range set.Lines {
		if l.Workload != workload.AddCancel || l.Subject == subject.None || l.Round != 1 {
			continue
		}
		n, _ := l.Get(workload.TimersUnit)
		y, _ := median(set, l.Key, "ns/op")
		x := max(n, leftEnd)
		sizes[x] = workload.Count(int(n))
		bySubject[l.Subject] = append(bySubject[l.Subject], plotter.XY{X: x, Y: y})
	}
	if len(bySubject) == 0 {
		return drawing{}
	}
	d.costs(bySubject)
	d.plot.X.Scale = plot.LogScale{}
	var ticks []plot.Tick
	for _, x := range slices.Sorted(maps.Keys(sizes)) {
		ticks = append(ticks, plot.Tick{Value: x, Label: sizes[x]})
	}
	d.plot.X.Tick.Marker = plot.ConstantTicks(ticks)
	return d
}

// costs draws the lines. Subjects that go far beyond the baseline are named in the note
// instead: their cost would leave no room for the differences of the others.
func (d *drawing) costs(bySubject map[string]plotter.XYs) {
	const beyond = 2.5
	limit := math.Inf(1)
	if _, most := extent(bySubject[subject.Baseline]); most > 0 {
		limit = beyond * most
	}
	var off []string
	top := 0.0
	for _, s := range subject.All() {
		least, most := extent(bySubject[s.Name])
		if most > limit {
			off = append(off, s.Name+" "+number(least)+" to "+number(most))
			continue
		}
		top = max(top, most)
		d.line(s.Name, bySubject[s.Name], true)
	}
	if len(off) > 0 {
		d.Note = "Beyond the axis, in ns: " + strings.Join(off, ", ") + "."
	}
	d.plot.Y.Min, d.plot.Y.Max = 0, top*1.1
}

// extent returns the least and the greatest Y, zero of nothing.
func extent(points plotter.XYs) (least, most float64) {
	for i, p := range points {
		if i == 0 {
			least, most = p.Y, p.Y
		}
		least, most = min(least, p.Y), max(most, p.Y)
	}
	return least, most
}

// logTicks are the powers of ten between two values.
func logTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for v := math.Pow(10, math.Ceil(math.Log10(low)-1e-9)); v <= high; v *= 10 {
		ticks = append(ticks, plot.Tick{Value: v, Label: number(v)})
	}
	return ticks
}

// latenessChart is the share of timers that had run so long after their deadlines.
func latenessChart(set *result.Set) drawing {
	const rate, from, to = 10_000, -4.0, 8.0
	d := newDrawing(Chart{
		File: "lateness.svg", Title: "Lateness: the share of timers that have run by then",
		Note:     "10 k timers a second. Ticks are of 1 ms; those of gost are of 10 ms, and those of Precise of 100 us.",
		Workload: workload.Lateness,
	}, "ms after the deadline; below 0 is early", "% of timers")
	some := false
	for _, s := range subject.All() {
		tick := time.Millisecond
		if s.FinestTick == 0 {
			tick = 0
		}
		points := distribution(set, result.Key{
			Workload: workload.Lateness, Config: workload.LatenessOf(rate, tick), Subject: s.Name,
		})
		some = some || len(points) > 0
		d.line(s.Name, points, false)
	}
	if !some {
		return drawing{}
	}
	zero, _ := plotter.NewLine(plotter.XYs{{X: 0, Y: 0}, {X: 0, Y: 100}})
	zero.Color, zero.Width = color.Gray{130}, vg.Points(1)
	d.plot.Add(zero)
	d.plot.X.Min, d.plot.X.Max, d.plot.Y.Min, d.plot.Y.Max = from, to, 0, 100
	return d
}

func distribution(set *result.Set, k result.Key) plotter.XYs {
	var points plotter.XYs
	add := func(unit string, y float64) {
		if x, ok := median(set, k, unit); ok {
			points = append(points, plotter.XY{X: x, Y: y})
		}
	}
	add("min-ms", 0)
	for _, p := range workload.Quantiles {
		add(workload.QuantileUnit(p), p)
	}
	add("max-ms", 100)
	return points
}

// barChart has one horizontal bar for each subject, with its value beside it. A subject
// that was given fewer timers than the others has none, since its bar would look like a
// better one. The axis is logarithmic from logFrom on, if that is not zero.
func barChart(set *result.Set, c Chart, config, unit, axis string, logFrom float64) drawing {
	d := newDrawing(c, axis, "")
	var rows []bar
	var names []string
	most := 0.0
	for _, s := range slices.Backward(subject.All()) {
		k := result.Key{Workload: c.Workload, Config: config, Subject: s.Name}
		v, ok := median(set, k, unit)
		if !ok {
			continue
		}
		row := bar{value: v, look: looks[s.Name], text: number(v)}
		if n, less := (grid{set, c.Workload}).reduced(config, s.Name); less {
			row = bar{text: "bears " + workload.Count(n) + " only"}
		}
		most = max(most, row.value)
		rows, names = append(rows, row), append(names, s.Name)
	}
	if len(rows) == 0 {
		return drawing{}
	}
	d.plot.NominalY(names...)
	d.plot.Y.Tick.Label.Font.Size = vg.Points(10)
	d.plot.Y.Padding = vg.Points(8)
	d.plot.Y.Min, d.plot.Y.Max = -0.6, float64(len(rows))-0.4
	d.plot.X.Min, d.plot.X.Max = 0, most*1.15
	if logFrom > 0 {
		d.plot.X.Min, d.plot.X.Max = logFrom, max(most*4, 10)
		d.plot.X.Scale = plot.LogScale{}
		d.plot.X.Tick.Marker = plot.ConstantTicks(logTicks(d.plot.X.Min, d.plot.X.Max))
	}
	d.plot.Add(bars(rows))
	return d
}

// bar is one of them, and the text at its end. Without a colour there is the text only.
type bar struct {
	value float64
	text  string
	look
}

// bars is a plotter of horizontal bars that begin at the left of the plot, also on
// a logarithmic axis, which the plotter of the library cannot.
type bars []bar

func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := p.X.Tick.Label
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	for i, row := range b {
		left, right := x(p.X.Min), x(max(row.value, p.X.Min))
		low, high := y(float64(i)-0.3), y(float64(i)+0.3)
		corners := []vg.Point{{X: left, Y: low}, {X: left, Y: high}, {X: right, Y: high}, {X: right, Y: low}}
		style.Color = color.Black
		switch {
		case row.color == nil:
			style.Color = quiet
		case len(row.dashes) == 0:
			c.FillPolygon(row.color, corners)
		default:
			outline := draw.LineStyle{Color: row.color, Width: vg.Points(1.5), Dashes: row.dashes}
			c.StrokeLines(outline, append(corners, corners[0]))
		}
		c.FillText(style, vg.Point{X: right + vg.Points(4), Y: (low + high) / 2}, row.text)
	}
}
