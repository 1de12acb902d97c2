//! `telemetry` at the top level: a node becomes a [`Telemetry`].

use url::Url;

use crate::config::{OtlpChoice, Telemetry, TrustChoice};
use crate::fields::{PROTOCOLS, Section, TRUST};
use crate::reader::{Fields, Reader};
use crate::tree::{Entry, Value};

/// Reads the section.
pub(crate) fn read(reader: &mut Reader<'_>, telemetry: &mut Telemetry, entry: &Entry) {
    let Some(fields) = Fields::open(reader, Section::Telemetry, "`telemetry`", &entry.value) else {
        return;
    };
    telemetry.endpoint = fields.take("endpoint").and_then(|entry| endpoint(reader, entry));
    telemetry.protocol =
        fields.take("protocol").and_then(|entry| reader.choice(entry, PROTOCOLS)).map(|protocol| match protocol {
            "grpc" => OtlpChoice::Grpc,
            _ => OtlpChoice::HttpProtobuf,
        });
    telemetry.service_name = fields
        .take("serviceName")
        .and_then(|entry| reader.text(entry))
        .map(|text| text.value)
        .filter(|name| !name.is_empty());
    telemetry.trust_inbound = fields.take("trustInbound").map_or(TrustChoice::True, |entry| trust(reader, entry));
}

/// YAML reads a bare `true` as a flag.
fn trust(reader: &mut Reader<'_>, entry: &Entry) -> TrustChoice {
    if matches!(entry.value.value, Value::Bool(true)) {
        return TrustChoice::True;
    }
    match reader.choice(entry, TRUST) {
        Some("link") => TrustChoice::Link,
        Some("ignore") => TrustChoice::Ignore,
        _ => TrustChoice::True,
    }
}

fn endpoint(reader: &mut Reader<'_>, entry: &Entry) -> Option<String> {
    let text = reader.text(entry)?;
    let fits = Url::parse(&text.value).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if fits {
        return Some(text.value);
    }
    let message = "the endpoint of the collector is no http or https URL";
    reader.error(text.span, message, "write its base URL, such as `http://127.0.0.1:4318`");
    None
}
