// Writes a table of schedules that were drawn, each with a moment and the next start after it in UTC, as the parser says that
// Kubernetes reads CronJobs with. A schedule that it refuses, or that never starts, has "-" there.
package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const cases = 500

type field struct {
	least, most int
	names       []string
}

var fields = []field{
	{0, 59, nil},
	{0, 23, nil},
	{1, 31, nil},
	{1, 12, strings.Fields("jan feb MAR apr may jun jul Aug sep oct nov dec")},
	{0, 6, strings.Fields("sun MON tue wed thu Fri sat")},
}

var words = strings.Fields("@hourly @daily @midnight @weekly @monthly @yearly @annually @reboot @Daily")

func main() {
	// The numbers of PCG are the same in every version of Go.
	draw := rand.New(rand.NewPCG(46, 500))
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	first := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for range cases {
		schedule := schedule(draw)
		after := first.Add(time.Duration(draw.IntN(12*366*24*60)) * time.Minute)
		fmt.Fprintf(out, "%s\t%s\t%s\n", schedule, shown(after), next(schedule, after))
	}
}

func next(text string, after time.Time) string {
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return "-"
	}
	start := schedule.Next(after)
	if start.IsZero() {
		return "-"
	}
	return shown(start)
}

func shown(moment time.Time) string {
	return moment.Format("2006-01-02T15:04:05")
}

func schedule(draw *rand.Rand) string {
	switch draw.IntN(25) {
	case 0:
		return words[draw.IntN(len(words))]
	case 1:
		// Not five of them.
		all := strings.Fields("* 1 2 3 4 * 6")
		return strings.Join(all[:3+2*draw.IntN(3)][:min(len(all), 3+draw.IntN(5))], " ")
	case 2:
		// A day that few months have, or none.
		return fmt.Sprintf("0 %d %d %d *", draw.IntN(24), 29+draw.IntN(3), 1+draw.IntN(12))
	}
	texts := make([]string, len(fields))
	for index, field := range fields {
		texts[index] = field.text(draw)
	}
	return strings.Join(texts, " ")
}

func (f field) text(draw *rand.Rand) string {
	switch draw.IntN(10) {
	case 0, 1, 2, 3:
		return "*"
	case 4:
		return "?"
	case 5:
		return f.part(draw) + "," + f.part(draw) + "," + f.part(draw)
	default:
		return f.part(draw)
	}
}

func (f field) part(draw *rand.Rand) string {
	span := f.most - f.least + 1
	least := f.least + draw.IntN(span)
	switch draw.IntN(24) {
	case 0, 1, 2:
		return "*/" + strconv.Itoa(1+draw.IntN(span))
	case 3, 4, 5:
		most := least + draw.IntN(f.most-least+1)
		return f.name(draw, least) + "-" + f.name(draw, most)
	case 6, 7:
		most := least + draw.IntN(f.most-least+1)
		return fmt.Sprintf("%d-%d/%d", least, most, 1+draw.IntN(5))
	case 8:
		return fmt.Sprintf("%d/%d", least, 1+draw.IntN(7))
	case 9:
		// Mostly wrong.
		wrong := []string{strconv.Itoa(f.most + 1), strconv.Itoa(f.least - 1), "L", "1W", "2#1", "*/0", "5-1", "1-2-3", "1/2/3", "x", "jan-", "099"}
		return wrong[draw.IntN(len(wrong))]
	default:
		return f.name(draw, least)
	}
}

func (f field) name(draw *rand.Rand, number int) string {
	if f.names != nil && draw.IntN(2) == 0 {
		return f.names[number-f.least]
	}
	return strconv.Itoa(number)
}
