package message_test

import (
	"encoding/json"
	"fmt"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

func Example() {
	request := message.New(subject.Orchestrator, "infra", message.NewUUID(), message.NewUUID(), message.WorkRequest{
		TaskID: subject.TaskID(message.NewUUID()), WorkType: "survey_host", Parameters: json.RawMessage(`{}`),
	})
	data, err := request.Encode()
	if err != nil {
		panic(err)
	}
	got, err := message.Decode[message.WorkRequest](data)
	fmt.Println(got.Payload.WorkType, err)

	request.Payload.Hints = &message.Hints{MaxMemoryMB: -1}
	_, err = request.Encode()
	fmt.Println(err)
	// Output:
	// survey_host <nil>
	// 5003 Invalid Message: payload.hints.max_memory_mb: must be greater than 0; leave it out for no limit
}
