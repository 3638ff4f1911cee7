// Package fetch asks servers of examples.
package fetch

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// Get makes one request and reads the answer to its end, or else the connection is not used
// again. It returns an error if the status is not 200.
func Get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
