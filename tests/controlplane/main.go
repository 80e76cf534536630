// Command controlplane is a complete Kubernetes control plane in one executable,
// for tests on machines that have neither a container engine nor any Kubernetes
// binary. The first argument says which program to be; what follows are that
// program's own flags:
//
//	controlplane kube-apiserver --etcd-servers=...
//	controlplane helm lint charts/kproxide
//	controlplane oracle < worlds.jsonl
//
// Everything is linked from published Go modules; go.mod pins all of them, and the
// versions only move together (see the comment there).
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	_ "time/tzdata" // CronJobs name time zones, and a test machine may have no database of them.

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helmcmd "helm.sh/helm/v4/pkg/cmd"
	helmkube "helm.sh/helm/v4/pkg/kube"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
)

// A server whose launcher sets this variable lives only as long as its standard
// input stays open. The launcher keeps the other end of that pipe, and the kernel
// closes it however the launcher dies.
const endWithStdin = "CONTROLPLANE_END_WITH_STDIN"

type program struct {
	name string
	run  func() (exitCode int)
}

var programs = []program{
	{"etcd", runEtcd},
	{"kube-apiserver", func() int { return cli.Run(apiserver.NewAPIServerCommand()) }},
	{"kube-controller-manager", func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) }},
	{"kube-scheduler", func() int { return cli.Run(scheduler.NewSchedulerCommand()) }},
	{"kwok", runKwok},
	{"kwok-stages", runKwokStages},
	{"kubectl", runKubectl},
	{"helm", runHelm},
	{"oracle", runOracle},
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	wanted := os.Args[1]
	index := slices.IndexFunc(programs, func(p program) bool { return p.name == wanted })
	if index < 0 {
		usage()
	}
	// Each program believes that it was started by its own name.
	os.Args = os.Args[1:]
	if os.Getenv(endWithStdin) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	os.Exit(programs[index].run())
}

func usage() {
	names := make([]string, 0, len(programs))
	for _, p := range programs {
		names = append(names, p.name)
	}
	fmt.Fprintf(os.Stderr, "usage: controlplane %s [flags]\n", strings.Join(names, "|"))
	os.Exit(2)
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // Prints the error as kubectl does, and exits.
	}
	return 0
}

// Importing Kubernetes registers flags on the process-wide flag set, --version
// among them. Cobra merges that set into every command of the process, where it
// collides with kwok's and Helm's own flags, so those two begin with an empty one.
func withoutGlobalFlags() {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
}

func runKwok() int {
	withoutGlobalFlags()
	// The global flags (--config, -v) are read ahead of the command's own, which
	// this first pass does not know.
	global := pflag.NewFlagSet("global", pflag.ContinueOnError)
	global.ParseErrorsAllowlist.UnknownFlags = true
	global.Usage = func() {}

	ctx, logger := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), global)
	ctx, err := kwokconfig.InitFlags(ctx, global)
	if err != nil {
		logger.Error("reading flags", "err", err)
		return 1
	}
	command := kwokcmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(global)
	return exitCode(command.ExecuteContext(ctx))
}

func runHelm() int {
	withoutGlobalFlags()
	helmkube.ManagedFieldsManager = "helm"
	command, err := helmcmd.NewRootCmd(os.Stdout, os.Args[1:], helmcmd.SetupLogging)
	if err != nil {
		return exitCode(err)
	}
	return exitCode(command.Execute())
}

// Commands that failed have printed their reason unless they leave it to us.
func exitCode(err error) int {
	var helmError helmcmd.CommandError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &helmError):
		return helmError.ExitCode
	default:
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
}
