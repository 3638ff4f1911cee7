package report

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	Workload string // whose section shows it
}

// look is how a subject looks in every chart. The colours are those of Okabe and
// Ito, which people with any of the common colour blindnesses can tell apart; the
// inline rows have the colour of their sisters, dashed, and the precise one dotted.
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
// stands beside the plot, where it covers nothing.
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
)

func (d drawing) save(file string) error {
	d.plot.Title.Text = d.Title
	d.plot.Title.TextStyle.Font.Size = vg.Points(13)
	d.plot.Title.Padding = vg.Points(8)
	canvas := vgsvg.New(chartWidth, chartHeight)
	area := draw.New(canvas)
	area.FillPolygon(color.White, []vg.Point{{}, {Y: chartHeight}, {X: chartWidth, Y: chartHeight}, {X: chartWidth}})
	area = draw.Crop(area, vg.Points(6), vg.Points(-10), vg.Points(6), vg.Points(-6))
	left := area
	if d.hasLegend {
		left = draw.Crop(area, 0, -legendWidth, 0, 0)
		d.legend.Top, d.legend.Left = true, true
		d.legend.Draw(draw.Crop(area, chartWidth-legendWidth-vg.Points(8), 0, 0, vg.Points(-40)))
	}
	d.plot.Draw(left)
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	return os.WriteFile(file, fontFamily.ReplaceAll(svg.Bytes(), []byte(fonts)), 0o644)
}

// The text is laid out with Liberation Sans, which few readers have. Arial has the
// same widths.
var fontFamily = regexp.MustCompile(`font-family:[^;"]*`)

const fonts = "font-family:Liberation Sans,Arial,Helvetica,sans-serif"

func drawings(set *result.Set, size workload.Size) []drawing {
	sizes := map[workload.Size]int{workload.Full: 1_000_000, workload.Quick: 200_000, workload.Tiny: 1000}
	fires := workload.Count(int(mostTimers(set, workload.Fire, workload.FireSpread)))
	return []drawing{
		costChart(set),
		latenessChart(set),
		barChart(set, Chart{"bytes.svg", "Memory of each pending timer (all share one function)", workload.Memory},
			workload.PendingShared(sizes[size]), "B/timer", "bytes", 0),
		barChart(set, Chart{"last.svg", "How late the last of " + fires + " tasks has run, due within a second", workload.Fire},
			workload.FireSpread, "last-ms", "ms after its deadline, logarithmic", 0.1),
		barChart(set, Chart{"last-tick.svg", "How late the last of " + fires + " tasks has run, all due at the same moment",
			workload.Fire}, workload.FireTick, "last-ms", "ms after their deadline, logarithmic", 1),
		barChart(set, Chart{"goroutines.svg", "Goroutines at the most (" + fires + " empty tasks due at the same moment)",
			workload.Fire}, workload.FireTick, "goroutines", "goroutines, logarithmic", 1),
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
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	d.plot.Add(grid)
	return d
}

// costChart is the cost of an add and a cancel against what is pending. Nothing
// pending has no place on a logarithmic axis; it stands at the left end.
func costChart(set *result.Set) drawing {
	const leftEnd = 1000.0
	d := newDrawing(Chart{"cost.svg", "Cost of an add and a cancel, by the number of pending timers", workload.AddCancel},
		"pending timers", "ns for an add and a cancel")
	bySubject := map[string]plotter.XYs{}
	sizes, low, high := map[float64]string{}, math.Inf(1), 0.0
	for _, l := range set.Lines {
		if l.Workload != workload.AddCancel || l.Subject == subject.None || l.Round != 1 {
			continue
		}
		n, _ := l.Get(workload.TimersUnit)
		y, _ := median(set, l.Key, "ns/op")
		x := max(n, leftEnd)
		sizes[x] = workload.Count(int(n))
		low, high = min(low, y), max(high, y)
		bySubject[l.Subject] = append(bySubject[l.Subject], plotter.XY{X: x, Y: y})
	}
	if len(bySubject) == 0 {
		return drawing{}
	}
	for _, s := range subject.All() {
		d.line(s.Name, bySubject[s.Name], true)
	}
	d.plot.X.Scale, d.plot.Y.Scale = plot.LogScale{}, plot.LogScale{}
	var ticks []plot.Tick
	for _, x := range slices.Sorted(maps.Keys(sizes)) {
		ticks = append(ticks, plot.Tick{Value: x, Label: sizes[x]})
	}
	d.plot.X.Tick.Marker = plot.ConstantTicks(ticks)
	d.plot.Y.Tick.Marker = plot.ConstantTicks(logTicks(low/1.5, high*1.5, 1, 2, 5))
	d.plot.Y.Min, d.plot.Y.Max = low/1.5, high*1.5
	return d
}

// logTicks are the multiples of the powers of ten between two values.
func logTicks(low, high float64, multiples ...float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, m := range multiples {
			if v := power * m; v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: number(v)})
			}
		}
	}
	return ticks
}

// latenessChart is the share of timers that had run so long after their deadlines.
func latenessChart(set *result.Set) drawing {
	const rate, from, to = 10_000, -4.0, 8.0
	d := newDrawing(Chart{
		"lateness.svg",
		"Lateness: share of timers that have run by then\n(10 k timers a second, ticks of 1 ms; gost's are 10 ms, those of Precise 100 us)",
		workload.Lateness,
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

// barChart has one horizontal bar for each subject, with its value beside it. The
// axis is logarithmic from logFrom on, if that is not zero.
func barChart(set *result.Set, c Chart, config, unit, axis string, logFrom float64) drawing {
	d := newDrawing(c, axis, "")
	var rows []bar
	var names []string
	for _, s := range slices.Backward(subject.All()) {
		k := result.Key{Workload: c.Workload, Config: config, Subject: s.Name}
		v, ok := median(set, k, unit)
		if !ok {
			continue
		}
		name := s.Name
		if n, ok := median(set, k, workload.TimersUnit); ok && n < mostTimers(set, c.Workload, config) {
			name += ", of " + workload.Count(int(n))
		}
		rows, names = append(rows, bar{value: v, look: looks[s.Name]}), append(names, name)
	}
	if len(rows) == 0 {
		return drawing{}
	}
	most := slices.MaxFunc(rows, func(a, b bar) int { return cmp.Compare(a.value, b.value) }).value
	d.plot.NominalY(names...)
	d.plot.Y.Tick.Label.Font.Size = vg.Points(10)
	d.plot.Y.Padding = vg.Points(8)
	d.plot.Y.Min, d.plot.Y.Max = -0.6, float64(len(rows))-0.4
	d.plot.X.Min, d.plot.X.Max = 0, most*1.15
	if logFrom > 0 {
		d.plot.X.Min, d.plot.X.Max = logFrom, max(most*4, 10)
		d.plot.X.Scale = plot.LogScale{}
		d.plot.X.Tick.Marker = plot.ConstantTicks(logTicks(d.plot.X.Min, d.plot.X.Max, 1))
	}
	d.plot.Add(bars(rows))
	return d
}

func mostTimers(set *result.Set, workloadName, config string) (most float64) {
	for _, l := range set.Lines {
		if l.Workload == workloadName && l.Config == config {
			n, _ := l.Get(workload.TimersUnit)
			most = max(most, n)
		}
	}
	return most
}

type bar struct {
	value float64
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
		if len(row.dashes) == 0 {
			c.FillPolygon(row.color, corners)
		} else {
			outline := draw.LineStyle{Color: row.color, Width: vg.Points(1.5), Dashes: row.dashes}
			c.StrokeLines(outline, append(corners, corners[0]))
		}
		c.FillText(style, vg.Point{X: right + vg.Points(4), Y: (low + high) / 2}, number(row.value))
	}
}
