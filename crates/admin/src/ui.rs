//! The web page: files embedded in the binary.

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use fanlight_protocol::digest::short_digest;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};

use crate::reply::Refusal;

/// The content security policy: only resources of the listener itself, nothing inline, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// A file of the page.
#[derive(Debug)]
struct Asset {
    name: &'static str,
    text: &'static str,
}

macro_rules! assets {
    ($($file:literal),* $(,)?) => {
        &[$(Asset { name: $file, text: include_str!(concat!("../ui/", $file)) }),*]
    };
}

const ASSETS: &[Asset] = assets![
    "index.html",
    "callback.html",
    "style.css",
    "forms.css",
    "icon.svg",
    "act.js",
    "app.js",
    "approvals.js",
    "audit.js",
    "api.js",
    "callback.js",
    "compare.js",
    "config.js",
    "connect.js",
    "connections.js",
    "dom.js",
    "filter-fields.js",
    "format.js",
    "json.js",
    "keep-content.js",
    "limits.js",
    "live.js",
    "log.js",
    "overview.js",
    "payload.js",
    "pins.js",
    "record.js",
    "running.js",
    "server-log.js",
    "sessions.js",
    "sign-in.js",
    "spans.js",
    "sse.js",
    "statistics.js",
    "table.js",
    "trace.js",
    "trace-filters.js",
    "traces.js",
    "trouble.js",
    "visible.js",
    "call/attend.js",
    "call/confirm.js",
    "call/content.js",
    "call/history.js",
    "call/question.js",
    "call/runner.js",
    "catalogue/catalogue.js",
    "catalogue/entry.js",
    "catalogue/tree.js",
    "form/field.js",
    "form/files.js",
    "form/form.js",
    "form/schema.js",
    "form/several.js",
    "form/simple.js",
    "form/union.js",
    "servers/list.js",
    "servers/lists.js",
    "servers/server.js",
    "servers/state.js",
];

/// The page itself.
pub(crate) async fn index(headers: HeaderMap) -> Result<Response, Refusal> {
    file(Path("index.html".to_owned()), headers).await
}

/// The page to which an issuer sends browsers back. It is the same for everybody.
/// Its links lead up to the page, which may be below a proxy's prefix.
pub(crate) async fn callback(uri: Uri) -> Result<Response, Refusal> {
    let response = file(Path("callback.html".to_owned()), HeaderMap::new()).await?;
    let up = "../".repeat(uri.path().matches('/').count().saturating_sub(1));
    let text = include_str!("../ui/callback.html").replace("\"/ui/", &format!("\"{up}ui/"));
    let mut response = response.map(|_| text.into());
    // The page's address contains a code.
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().remove(ETAG);
    Ok(response)
}

/// One of the page's files.
pub(crate) async fn file(
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| Refusal::not_found("the page has no such file"))?;
    Ok(asset.response(&headers))
}

impl Asset {
    /// The response with the file, or 304 if the browser has it.
    fn response(&self, headers: &HeaderMap) -> Response {
        let tag = self.tag();
        let is_known = headers
            .get(IF_NONE_MATCH)
            .is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let (status, text) = if is_known {
            (StatusCode::NOT_MODIFIED, "")
        } else {
            (StatusCode::OK, self.text)
        };
        let headers = [
            (CONTENT_TYPE, self.kind()),
            // Browsers have to check each time, since the next version of the program has other
            // files at the same paths.
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (
                HeaderName::from_static("cross-origin-opener-policy"),
                "same-origin",
            ),
        ];
        (status, headers, [(ETAG, tag)], text).into_response()
    }

    fn kind(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        }
    }

    fn tag(&self) -> String {
        format!("\"{}\"", short_digest(self.text))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn page_files_are_all_served() {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/ui"));
        let (mut folders, mut files) = (vec![root.to_owned()], BTreeSet::new());
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
            {
                match path.is_dir() {
                    true => folders.push(path),
                    false => drop(
                        files.insert(
                            path.strip_prefix(root)
                                .unwrap()
                                .to_str()
                                .unwrap()
                                .to_owned(),
                        ),
                    ),
                }
            }
        }
        assert_eq!(
            files,
            ASSETS.iter().map(|asset| asset.name.to_owned()).collect()
        );
    }

    #[test]
    fn page_uses_nothing_that_its_policy_forbids() {
        for asset in ASSETS {
            // These are names of XML namespaces, not addresses.
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in [
                "http://",
                "https://",
                "//cdn",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!text.contains(forbidden), "{} has {forbidden}", asset.name);
            }
            let inline = asset.kind().starts_with("text/html")
                && (text.contains("<script>")
                    || text.contains("style=")
                    || text.contains("<style"));
            assert!(!inline, "{}", asset.name);
        }
    }

    /// Text that is escaped on a terminal must be escaped on the page, too.
    #[test]
    fn page_escapes_what_the_log_escapes() {
        let script = include_str!("../ui/visible.js");
        let hex =
            |text: &str| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap();
        let pairs = script
            .split("[0x")
            .skip(1)
            .map(|rest| rest.split(']').next().unwrap());
        let ranges: Vec<(u32, u32)> = pairs
            .map(|pair| {
                pair.split_once(',')
                    .map(|(first, last)| (hex(first), hex(last)))
                    .unwrap()
            })
            .collect();
        assert!(ranges.len() > 20);
        for character in (0..=u32::from(char::MAX))
            .filter_map(char::from_u32)
            .filter(|c| !c.is_control())
        {
            let is_listed = ranges
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&u32::from(character)));
            let is_escaped =
                fanlight_protocol::visible::escaped(character.encode_utf8(&mut [0; 4])).len() > 4;
            assert_eq!(is_listed, is_escaped, "{character:?}");
        }
    }

    #[test]
    fn known_file_is_not_sent_again() {
        let asset = &ASSETS[0];
        let first = asset.response(&HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let known = HeaderMap::from_iter([(IF_NONE_MATCH, first.headers()[ETAG].clone())]);
        assert_eq!(asset.response(&known).status(), StatusCode::NOT_MODIFIED);
    }
}
