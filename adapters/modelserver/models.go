package modelserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

const (
	maxModels    = 4096
	maxNameBytes = 512
)

// DecodeModels reads the answer of /v1/models. It returns the ids of the list, those of base models and of adapters
// alike, in the order of the list, each once. Entries without an id are left out. More than 4096 models, or an id of
// more than 512 bytes, are an error.
func DecodeModels(body []byte) ([]string, error) {
	var list struct {
		Data *[]struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("model list: %w", err)
	}
	if list.Data == nil {
		return nil, errors.New("model list: no data")
	}
	if n := len(*list.Data); n > maxModels {
		return nil, fmt.Errorf("model list: %d models, limit %d", n, maxModels)
	}
	names := make([]string, 0, len(*list.Data))
	seen := make(map[string]struct{}, len(*list.Data))
	for i, m := range *list.Data {
		if len(m.ID) > maxNameBytes {
			return nil, fmt.Errorf("model list: data[%d].id has %d bytes, limit %d", i, len(m.ID), maxNameBytes)
		}
		if _, known := seen[m.ID]; known || m.ID == "" {
			continue
		}
		seen[m.ID] = struct{}{}
		names = append(names, m.ID)
	}
	return slices.Clip(names), nil
}
