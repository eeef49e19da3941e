package profiles

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// DataParallel runs the only profile over endpoints that are the ranks of data-parallel servers. The request goes to
// the port on which the picked server's sidecar listens, and a header tells the sidecar the rank. There is one
// destination only, because the sidecar of another server could not reach the rank.
type DataParallel struct {
	SingleProfile
	// PrimaryPort is the sidecar's port, 1 to 65535.
	PrimaryPort int `json:"primaryPort"`
	// TargetPort is the older name of primaryPort.
	TargetPort *int `json:"targetPort" older:"primaryPort"`
}

// Validate returns which parameters are out of range.
func (h *DataParallel) Validate() error {
	if h.PrimaryPort < 1 || h.PrimaryPort > 65535 {
		return fmt.Errorf("primaryPort: got %d, want 1 to 65535", h.PrimaryPort)
	}
	return nil
}

// Finish sends the request to the sidecar of the picked rank.
func (h *DataParallel) Finish(c *schedule.Course, f *schedule.Final) {
	sendToSidecar(c, f, h.PrimaryPort)
}

// sendToSidecar sends a request to a port of the picked server, where a header tells its sidecar the rank.
func sendToSidecar(c *schedule.Course, f *schedule.Final, port int) {
	f.Destinations = f.Destinations[:1]
	first := &f.Destinations[0]
	rank := string(c.Endpoint(first.At).Address())
	first.Sent = messages.Address(rank[:strings.LastIndexByte(rank, ':')+1] + strconv.Itoa(port))
	f.Headers = append(f.Headers, messages.Header{Name: messages.DataParallelHeader, Value: rank})
}
