// Package profiles holds every profile handler: each has a file, and a line in Types. A handler says which profile runs
// next. It keeps no memory between requests, and never looks at candidates.
package profiles

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Types maps the type name in configuration to a constructor of the handler with its defaults. Parameters are decoded
// onto that value, and its Validate returns what is wrong with them.
var Types = map[string]func() schedule.Handler{
	"data-parallel-profile-handler": func() schedule.Handler { return &DataParallel{PrimaryPort: 8000} },
	"disagg-profile-handler": func() schedule.Handler {
		return &Disagg{StageOrder: decodeFirst, Profiles: DisaggProfiles{
			Decode: "decode", Prefill: "prefill", Encode: "encode",
		}}
	},
	"header-profile-handler": func() schedule.Handler {
		return &HeaderProfile{HeaderName: profileHeader, DefaultProfile: "decode", OnUnknown: refuseUnknown}
	},
	"pd-profile-handler": func() schedule.Handler {
		return &PrefillDecode{DecodeProfile: "decode", PrefillProfile: "prefill"}
	},
	"single-profile-handler": func() schedule.Handler { return new(SingleProfile) },
}
