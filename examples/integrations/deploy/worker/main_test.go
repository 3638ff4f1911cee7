package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

const patience = 2 * time.Minute

func TestWorker(t *testing.T) {
	database := pgserver.Test(t).DSN()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, func(name string) string {
			return map[string]string{"DATABASE_URL": database, "ADDRESS": address, "GRACE": "5s"}[name]
		})
	}()
	ready := func() bool {
		answer, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	require.Eventually(t, ready, patience, 20*time.Millisecond)
	answer, err := http.Post("http://"+address+"/orders", "text/plain", strings.NewReader("a book"))
	require.NoError(t, err)
	ref, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, string(ref))

	pool, err := pgxpool.New(t.Context(), database)
	require.NoError(t, err)
	defer pool.Close()
	done := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from tickwheel.job where state < 2").Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return done() == 0 }, patience, 20*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

func TestBadSettings(t *testing.T) {
	for name, value := range map[string]string{"GRACE": "soon", "DATABASE_URL": "postgres://127.0.0.1:x/"} {
		err := run(t.Context(), func(n string) string {
			if n == name {
				return value
			}
			return ""
		})
		require.ErrorContains(t, err, strings.TrimPrefix(value, "postgres://"))
	}
}

// decode reads a file and refuses what is unknown.
func decode(t *testing.T, name string, into any) {
	file, err := os.Open(filepath.Join("..", name))
	require.NoError(t, err)
	defer file.Close()
	d := yaml.NewDecoder(file)
	d.KnownFields(true)
	require.NoError(t, d.Decode(into))
	require.ErrorIs(t, d.Decode(into), io.EOF)
}

// build runs the Dockerfile's command for a program. With its settings nearly all is compiled
// anew, once: 77 s of processor time for both programs, and 3 s after that.
func build(t *testing.T, program string) {
	text, err := os.ReadFile("../Dockerfile")
	require.NoError(t, err)
	command := regexp.MustCompile(`(?m)^RUN (.*go build .*-o )/program \$PROGRAM$`).FindStringSubmatch(string(text))
	require.NotNil(t, command)
	built := filepath.Join(t.TempDir(), "program")
	c := exec.Command("sh", "-c", command[1]+`"$0" "$1"`, built, program)
	c.Dir = "../../../.."
	said, err := c.CombinedOutput()
	require.NoError(t, err, string(said))
	require.FileExists(t, built)
}

// reads reports whether the worker reads a setting.
func reads(t *testing.T, setting string) bool {
	text, err := os.ReadFile("main.go")
	require.NoError(t, err)
	return strings.Contains(string(text), `env("`+setting+`")`)
}

func TestCompose(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Image string
			Build struct {
				Context, Dockerfile string
				Args                map[string]string
			}
			Command     []string
			Environment map[string]string
			Volumes     []string
			Ports       []string
			Restart     string
			Grace       time.Duration `yaml:"stop_grace_period"`
			Healthcheck struct {
				Test              []string
				Interval, Timeout time.Duration
				Retries           int
			}
			DependsOn map[string]struct{ Condition string } `yaml:"depends_on"`
		}
		Volumes map[string]struct{}
	}
	decode(t, "compose.yaml", &file)
	require.Len(t, file.Services, 3)
	for name, s := range file.Services {
		for on := range s.DependsOn {
			require.Contains(t, file.Services, on, name)
		}
		if s.Image != "" {
			continue
		}
		require.FileExists(t, filepath.Join("..", s.Build.Context, s.Build.Dockerfile))
		build(t, s.Build.Args["PROGRAM"])
		for setting := range s.Environment {
			require.True(t, reads(t, setting), setting)
		}
	}
	worker := file.Services["worker"]
	grace, err := time.ParseDuration(worker.Environment["GRACE"])
	require.NoError(t, err)
	require.Greater(t, worker.Grace, grace)
	require.Equal(t, []string{"127.0.0.1:8470:8470"}, file.Services["page"].Ports)
}

func TestKubernetes(t *testing.T) {
	type labels = map[string]string
	var d struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			Replicas int
			Selector struct {
				MatchLabels labels `yaml:"matchLabels"`
			}
			Template struct {
				Metadata struct{ Labels labels }
				Spec     struct {
					Grace      int `yaml:"terminationGracePeriodSeconds"`
					Containers []struct {
						Name, Image string
						Env         []struct {
							Name, Value string
							ValueFrom   struct {
								SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
							} `yaml:"valueFrom"`
						}
						Ports []struct {
							ContainerPort int `yaml:"containerPort"`
						}
						ReadinessProbe struct {
							HTTPGet struct {
								Path string
								Port int
							} `yaml:"httpGet"`
							TimeoutSeconds int `yaml:"timeoutSeconds"`
						} `yaml:"readinessProbe"`
						Resources       struct{ Requests, Limits map[string]string }
						SecurityContext struct {
							RunAsNonRoot             bool `yaml:"runAsNonRoot"`
							ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
							AllowPrivilegeEscalation bool `yaml:"allowPrivilegeEscalation"`
						} `yaml:"securityContext"`
					}
				}
			}
		}
	}
	decode(t, "kubernetes.yaml", &d)
	pod := d.Spec.Template
	require.Equal(t, d.Spec.Selector.MatchLabels, pod.Metadata.Labels)
	require.Len(t, pod.Spec.Containers, 1)
	c := pod.Spec.Containers[0]
	for _, e := range c.Env {
		require.True(t, reads(t, e.Name), e.Name)
		if e.Name == "GRACE" {
			grace, err := time.ParseDuration(e.Value)
			require.NoError(t, err)
			require.Greater(t, time.Duration(pod.Spec.Grace)*time.Second, grace)
		}
	}
	require.Equal(t, c.Ports[0].ContainerPort, c.ReadinessProbe.HTTPGet.Port)
	require.Equal(t, "/healthz", c.ReadinessProbe.HTTPGet.Path)
}
