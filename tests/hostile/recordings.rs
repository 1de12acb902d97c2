//! Secrets in recordings: planted in every place from which a recording takes text, and repeated by
//! servers in results, errors, `_meta` and events, as they are and encoded. The file has none.

use std::fmt::Write as _;

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER};
use fanlight_testkit::recorder::{Recorder, lines};

use crate::harness::Gateway;
use crate::raw_client::{
    Connection, JSON_HEADERS, initialize, legacy_request, modern_headers, modern_request,
};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// How a server repeats a secret, by name.
type Encoding = (&'static str, fn(&str) -> String);

const ENCODINGS: [Encoding; 12] = [
    ("raw", str::to_owned),
    ("hexadecimal", hexadecimal),
    ("upper case", |text| hexadecimal(text).to_uppercase()),
    ("base64", |text| BASE64_NOPAD.encode(text.as_bytes())),
    ("base64, one later", |text| {
        BASE64_NOPAD.encode(format!("x{text} and").as_bytes())
    }),
    ("base64, two later", |text| {
        BASE64_NOPAD.encode(format!("xy{text}").as_bytes())
    }),
    ("base64 for URLs", |text| {
        BASE64URL_NOPAD.encode(format!("é?{text}~").as_bytes())
    }),
    ("percent", |text| {
        text.bytes()
            .fold(String::new(), |all, byte| all + &format!("%{byte:02X}"))
    }),
    ("escapes", escapes),
    ("escapes in a text", |text| {
        escapes(text).replace('\\', "\\\\")
    }),
    ("reversed", |text| text.chars().rev().collect()),
    ("in another text", |text| format!("before {text}, after")),
];

fn hexadecimal(text: &str) -> String {
    HEXLOWER.encode(text.as_bytes())
}

fn escapes(text: &str) -> String {
    text.encode_utf16()
        .fold(String::new(), |all, unit| all + &format!("\\u{unit:04x}"))
}

/// The parts of `text` that its base64 always has, at each place within a group of three bytes.
fn base64_cores(text: &str) -> Vec<String> {
    (0..3)
        .map(|shift| {
            let whole = BASE64_NOPAD.encode(&[&vec![b'x'; shift][..], text.as_bytes()].concat());
            let (start, end) = ((shift * 4).div_ceil(3), (shift + text.len()) * 4 / 3);
            whole[start..end].to_owned()
        })
        .collect()
}

/// All forms in which a secret must not be in the file.
fn forms(secret: &str) -> Vec<String> {
    let mut all = vec![
        secret.to_owned(),
        hexadecimal(secret),
        hexadecimal(secret).to_uppercase(),
        escapes(secret),
        escapes(secret).replace('\\', "\\\\"),
        secret.chars().rev().collect(),
        ENCODINGS[7].1(secret),
    ];
    for core in base64_cores(secret) {
        all.push(core.replace('+', "-").replace('/', "_"));
        all.push(core);
    }
    all
}

/// Secrets that have been planted.
#[derive(Default)]
struct Planted(Vec<String>);

impl Planted {
    fn plant(&mut self, place: &str) -> String {
        let number = self.0.len();
        let secret = format!(
            "{place}-{:x}q",
            0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1)
        );
        self.0.push(secret.clone());
        secret
    }

    fn assert_none_in(&self, text: &str) {
        for secret in &self.0 {
            for form in forms(secret) {
                if let Some(at) = text.find(&form) {
                    let around = &text[at.saturating_sub(200)..(at + 200).min(text.len())];
                    panic!("{secret} as {form}: …{around}…");
                }
            }
        }
    }
}

async fn post(
    gateway: &Gateway,
    headers: &[(&str, &str)],
    body: &str,
) -> crate::raw_client::Response {
    let mut all = JSON_HEADERS.to_vec();
    all.extend_from_slice(headers);
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("POST", "/mcp", &all, body.as_bytes())
        .await;
    connection.response().await
}

/// A result that repeats each secret in each encoding, as texts and as names of members.
fn echo(secrets: &[String]) -> String {
    let mut members = String::new();
    for (number, secret) in secrets.iter().enumerate() {
        for (at, (_, encode)) in ENCODINGS.iter().enumerate() {
            write!(members, r#""k{number}-{at}":"{}","#, encode(secret)).unwrap();
        }
        write!(members, r#""{secret}":["{secret}"],"#).unwrap();
    }
    format!(r#"{{{members}"end":1}}"#)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_planted_secret_is_in_a_recording() {
    let mut planted = Planted::default();
    let http = Backend::start(Era::Legacy, Transport::Http).await;
    let stdio = Backend::start(Era::Modern, Transport::Stdio).await;
    let configured: Vec<String> = (0..23)
        .map(|number| planted.plant(&format!("conf{number}")))
        .collect();
    let pairs = |secrets: &[String], value: &str| {
        let all = secrets.iter().enumerate();
        all.map(|(at, secret)| format!(r#""X_{at}":"{}""#, value.replace('$', secret)))
            .collect::<Vec<_>>()
            .join(",")
    };
    let headers = pairs(&configured[..10], "Bearer $").replace("X_", "X-");
    let env = pairs(&configured[10..22], "$");
    let entry = http.entry_with("web", &format!(r#""headers":{{{headers}}}"#));
    let entry = entry.replace("/mcp", &format!("/mcp?key={}", configured[22]));
    let local = stdio.entry_with("local", &format!(r#""env":{{{env}}}"#));
    let config = config(&[entry, local]);
    let echoed = echo(&configured);
    for (backend, era) in [(&http, Era::Legacy), (&stdio, Era::Modern)] {
        backend.offers_tools(&["t", "bad"]);
        let result = era.complete(&format!(
            r#""content":[],"structuredContent":{echoed},"_meta":{{"x/y":{echoed}}}"#
        ));
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":{echoed}}}}}"#
        );
        backend.on_target(
            "tools/call",
            "t",
            Reply::result(result).after(&[&progress]).streamed(),
        );
        let error = format!(r#"{{"code":-32000,"message":"no","data":{echoed}}}"#);
        backend.on_target("tools/call", "bad", Reply::error(error));
    }
    let gateway = Gateway::start(&config).await;
    let recorder = Recorder::start(gateway.admin, &[]).await;

    // A legacy client, whose session id a server and the client repeat.
    let credentials = [
        planted.plant("bearer"),
        planted.plant("cookie"),
        planted.plant("apikey"),
        planted.plant("proxy"),
    ];
    let bearer = format!("Bearer {}", credentials[0]);
    let cookie = format!("a=1; session={}", credentials[1]);
    let basic = format!(
        "Basic {}",
        BASE64_NOPAD.encode(format!("me:{}", credentials[3]).as_bytes())
    );
    let of_client = [
        ("Authorization", bearer.as_str()),
        ("Cookie", cookie.as_str()),
        ("X-Api-Key", credentials[2].as_str()),
        ("Proxy-Authorization", basic.as_str()),
    ];
    let mut opened = post(&gateway, &of_client, &initialize("2025-11-25", "{}")).await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    planted.0.push(session.clone());
    opened.text().await;
    let mut with_session = of_client.to_vec();
    with_session.push(("Mcp-Session-Id", &session));
    with_session.push(("MCP-Protocol-Version", "2025-11-25"));
    for tool in ["web__t", "web__bad", "local__t", "local__bad"] {
        let spoken = echo(&[
            session.clone(),
            credentials[0].clone(),
            credentials[1].clone(),
            credentials[2].clone(),
            credentials[3].clone(),
        ]);
        let params = format!(r#""name":"{tool}","arguments":{spoken}"#);
        post(
            &gateway,
            &with_session,
            &legacy_request("1", "tools/call", &params),
        )
        .await
        .text()
        .await;
    }
    let ids: Vec<String> = http
        .received("tools/call")
        .iter()
        .filter_map(|call| call.header("mcp-session-id").map(str::to_owned))
        .collect();
    for id in ids.into_iter().filter(|id| id.len() >= 8) {
        planted.0.push(id);
    }

    // Members, options, URLs and headers that the list of secret names knows.
    let mut named = |place: &str| planted.plant(place);
    let arguments = format!(
        r#"{{"password":"{}","deep":[{{"api_key":{{"v":"{}"}}}}],"headers":[{{"name":"Authorization","value":"{}"}}],"command":["run","--token","{}","-v"],"line":"run --password {} --client-secret={} now","url":"https://me:{}@host/p?access_token={}#id_token={}","text":"{{\"refreshToken\":\"{}\"}}","note":"Authorization: Bearer {}","pairs":[["X-Api-Key","{}"]],"pass\u0077ord":"{}","env":{{"AWS_SECRET_ACCESS_KEY":"{}"}},"cookie":"{}","session_id":"{}","privateKey":"{}","otp":"{}","dsn":"postgres://u:{}@db/x","jwt":"{}"}}"#,
        named("member"),
        named("nested"),
        named("pair"),
        named("option"),
        named("words"),
        named("equals"),
        named("userinfo"),
        named("query"),
        named("fragment"),
        named("within"),
        named("scheme"),
        named("list"),
        named("escaped"),
        named("variable"),
        named("jar"),
        named("sid"),
        named("pem"),
        named("once"),
        named("dsn"),
        named("token"),
    );
    let (uri, param, region) = (named("uri"), named("param"), named("mirrored"));
    let params = format!(r#""name":"local__t","arguments":{arguments}"#);
    let body = modern_request("2", "tools/call", &params, "");
    let mut all: Vec<(String, String)> = modern_headers(&body);
    all.push(("Mcp-Param-Token".to_owned(), param));
    all.push((
        "Mcp-Param-Region".to_owned(),
        format!(
            "=?base64?{}?=",
            BASE64_NOPAD.encode(format!("https://a:{region}@h").as_bytes())
        ),
    ));
    let borrowed: Vec<(&str, &str)> = all
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    post(&gateway, &borrowed, &body).await.text().await;
    let read = modern_request(
        "3",
        "resources/read",
        &format!(r#""uri":"https://u:{uri}@host/r""#),
        "",
    );
    let all = modern_headers(&read);
    let borrowed: Vec<(&str, &str)> = all
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    post(&gateway, &borrowed, &read).await.text().await;
    // Broken messages are recorded, too.
    let broken = format!(
        r#"{{"password":"{}", broken {}"#,
        named("broken"),
        configured[0]
    );
    post(&gateway, &[], &broken).await.text().await;
    for number in 0..40 {
        let secret = planted.plant(&format!("many{number}"));
        let params = format!(
            r#""name":"local__t","arguments":{{"n":{number},"secret-{number}":"{secret}"}}"#
        );
        let body = modern_request("4", "tools/call", &params, "");
        let all = modern_headers(&body);
        let borrowed: Vec<(&str, &str)> = all
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        post(&gateway, &borrowed, &body).await.text().await;
    }

    let text = recorder.finish().await;
    assert!(planted.0.len() >= 90, "{}", planted.0.len());
    planted.assert_none_in(&text);
    let all = lines(&text);
    let masked = all.iter().filter(|line| line["masked"].is_array()).count();
    assert!(masked >= 50, "{masked}");
    assert!(
        all.iter()
            .all(|line| line["headers"]["authorization"].is_null()
                && line["headers"]["cookie"].is_null())
    );
}
