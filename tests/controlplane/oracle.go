package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// question is one line of standard input: the objects of a world, as an API server would be given them, and the pods
// (namespace/name) to be judged against each of its Nodes.
type question struct {
	Objects []json.RawMessage `json:"objects"`
	Pods    []string          `json:"pods"`
}

// answer is one line of standard output, in the order of the questions.
type answer struct {
	Verdicts []verdict `json:"verdicts,omitempty"`
	// Error says why the world could not be judged, such as what the API server would not have taken.
	Error string `json:"error,omitempty"`
}

type verdict struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
	// Refused has every filter plugin that refuses, in the order in which the scheduler asks them.
	Refused []refusal `json:"refused"`
}

type refusal struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

// runOracle answers with kube-scheduler's own filter plugins, each asked alone.
func runOracle() int {
	metrics.Register()
	profile, err := defaultProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	if err := answerAll(profile, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	return 0
}

// answerAll judges a few worlds at once and keeps their order.
func answerAll(profile *config.KubeSchedulerProfile, in io.Reader, out io.Writer) error {
	input, output := bufio.NewReader(in), bufio.NewWriter(out)
	pending := make(chan chan []byte, 4)
	var reading error
	go func() {
		defer close(pending)
		for {
			line, err := input.ReadBytes('\n')
			if len(bytes.TrimSpace(line)) > 0 {
				judged := make(chan []byte, 1)
				pending <- judged
				go func() { judged <- answerLine(profile, line) }()
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					reading = err
				}
				return
			}
		}
	}()
	for judged := range pending {
		if _, err := output.Write(append(<-judged, '\n')); err != nil {
			return err
		}
		// Whoever asks one question at a time waits for its answer.
		if len(pending) == 0 {
			if err := output.Flush(); err != nil {
				return err
			}
		}
	}
	return errors.Join(reading, output.Flush())
}

func answerLine(profile *config.KubeSchedulerProfile, line []byte) []byte {
	var asked question
	given := answer{}
	err := json.Unmarshal(line, &asked)
	if err == nil {
		given.Verdicts, err = judge(profile, asked)
	}
	if err != nil {
		given = answer{Error: err.Error()}
	}
	text, err := json.Marshal(given)
	if err != nil {
		panic(err)
	}
	return text
}

func defaultProfile() (*config.KubeSchedulerProfile, error) {
	defaults, err := schedulerconfig.Default()
	if err != nil {
		return nil, err
	}
	return &defaults.Profiles[0], nil
}

func judge(profile *config.KubeSchedulerProfile, asked question) ([]verdict, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory := informers.NewSharedInformerFactory(nil, 0)
	pods := map[string]*corev1.Pod{}
	nodes := map[string]*corev1.Node{}
	for _, raw := range asked.Objects {
		object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return nil, err
		}
		legacyscheme.Scheme.Default(object)
		if pod, isPod := object.(*corev1.Pod); isPod {
			if object, err = asStored(ctx, pod); err != nil {
				return nil, err
			}
		}
		switch one := object.(type) {
		case *corev1.Pod:
			pods[one.Namespace+"/"+one.Name] = one
		case *corev1.Node:
			nodes[one.Name] = one
		}
		if err := keep(factory, object); err != nil {
			return nil, err
		}
	}
	snapshot := snapshotOf(pods, nodes)
	filters, err := newFilters(ctx, profile, factory, snapshot)
	if err != nil {
		return nil, err
	}
	infos, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(infos, func(a, b fwk.NodeInfo) int { return cmp.Compare(a.Node().Name, b.Node().Name) })
	verdicts := []verdict{}
	for _, name := range asked.Pods {
		pod := pods[name]
		if pod == nil {
			return nil, fmt.Errorf("there is no pod %s", name)
		}
		of := make([]verdict, len(infos))
		for i, info := range infos {
			of[i] = verdict{Pod: name, Node: info.Node().Name, Refused: []refusal{}}
		}
		for _, filter := range filters {
			for i, status := range ask(ctx, filter, pod, infos) {
				if status.IsSuccess() {
					continue
				}
				// An error ends the attempt, and so refuses too.
				of[i].Refused = append(of[i].Refused, refusal{filter.Name(), status.Reasons()})
			}
		}
		verdicts = append(verdicts, of...)
	}
	return verdicts, nil
}

// asStored is the pod as the API server would store it: checked, with defaults and with the label keys of its terms made
// part of their selectors. Its status is left as it is.
func asStored(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	var internal core.Pod
	if err := legacyscheme.Scheme.Convert(pod, &internal, nil); err != nil {
		return nil, err
	}
	podregistry.Strategy.PrepareForCreate(ctx, &internal)
	if wrong := podregistry.Strategy.Validate(ctx, &internal); len(wrong) > 0 {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, wrong.ToAggregate())
	}
	stored := &corev1.Pod{}
	if err := legacyscheme.Scheme.Convert(&internal, stored, nil); err != nil {
		return nil, err
	}
	stored.Status = pod.Status
	return stored, nil
}

// keep puts an object where the plugins look for it. Informers need not run for that: the plugins read their stores.
func keep(factory informers.SharedInformerFactory, object runtime.Object) error {
	newInformer := func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(&cache.ListWatch{}, object, 0, cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		})
	}
	return factory.InformerFor(object, newInformer).GetStore().Add(object)
}

// snapshotOf knows what the scheduler's cache would: Nodes, and the pods on them that have not ended.
func snapshotOf(pods map[string]*corev1.Pod, nodes map[string]*corev1.Node) *schedulercache.Snapshot {
	var bound []*corev1.Pod
	for _, pod := range pods {
		hasEnded := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if nodes[pod.Spec.NodeName] != nil && !hasEnded {
			bound = append(bound, pod)
		}
	}
	all := make([]*corev1.Node, 0, len(nodes))
	for _, node := range nodes {
		all = append(all, node)
	}
	return schedulercache.NewSnapshot(bound, all)
}

// newFilters makes the filter plugins of the default profile. DynamicResources is left out: kproxide refuses pods with
// such claims by name, and without claims the plugin lets every pod pass.
func newFilters(
	ctx context.Context,
	profile *config.KubeSchedulerProfile,
	factory informers.SharedInformerFactory,
	snapshot fwk.SharedLister,
) ([]fwk.FilterPlugin, error) {
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil,
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
	)
	if err != nil {
		return nil, err
	}
	arguments := map[string]runtime.Object{}
	for _, plugin := range profile.PluginConfig {
		arguments[plugin.Name] = plugin.Args
	}
	registry := plugins.NewInTreeRegistry()
	var filters []fwk.FilterPlugin
	for _, enabled := range profile.Plugins.MultiPoint.Enabled {
		if slices.Contains(notFilters, enabled.Name) {
			continue
		}
		plugin, err := registry[enabled.Name](ctx, arguments[enabled.Name], handle)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", enabled.Name, err)
		}
		filter, isFilter := plugin.(fwk.FilterPlugin)
		if !isFilter {
			return nil, fmt.Errorf("%s does not filter", enabled.Name)
		}
		filters = append(filters, filter)
	}
	return filters, nil
}

// notFilters are the plugins of the default profile that are not asked.
var notFilters = []string{
	names.SchedulingGates, names.PrioritySort, names.DefaultPreemption, names.NodeResourcesBalancedAllocation,
	names.ImageLocality, names.DefaultBinder, names.DynamicResources,
}

// ask says what the plugin alone thinks of each Node.
func ask(ctx context.Context, filter fwk.FilterPlugin, pod *corev1.Pod, infos []fwk.NodeInfo) []*fwk.Status {
	answers := make([]*fwk.Status, len(infos))
	state := framework.NewCycleState()
	var eligible *fwk.PreFilterResult
	if before, hasBefore := filter.(fwk.PreFilterPlugin); hasBefore {
		result, status := before.PreFilter(ctx, state, pod, infos)
		if status.IsSkip() {
			return answers
		}
		if !status.IsSuccess() {
			for i := range answers {
				answers[i] = status
			}
			return answers
		}
		eligible = result
	}
	for i, info := range infos {
		if !eligible.AllNodes() && !eligible.NodeNames.Has(info.Node().Name) {
			answers[i] = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "not among the Nodes that PreFilter names")
			continue
		}
		answers[i] = filter.Filter(ctx, state, pod, info)
	}
	return answers
}
