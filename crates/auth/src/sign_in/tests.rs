use std::sync::Mutex;
use std::time::UNIX_EPOCH;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use fanlight_canonical::identity::Source;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// An issuer on this machine, with one key.
struct Issuer {
    url: String,
    shared: Arc<Mutex<Script>>,
}

/// The issuer's answers.
struct Script {
    url: String,
    key: Ed25519KeyPair,
    /// Further members of its metadata.
    metadata: String,
    /// The URL where browsers sign in.
    authorization: String,
    /// The header of the ID token.
    header: String,
    /// The claims of the ID token besides `iss`.
    claims: String,
    issuer_in_token: Option<String>,
    has_wrong_signature: bool,
    /// The requests to the token endpoint.
    exchanges: Vec<String>,
    is_down: bool,
    /// The number of requests.
    asked: usize,
}

fn key() -> Ed25519KeyPair {
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap()
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// Claims of an ID token for this client and this sign-in.
fn claims(nonce: &str) -> String {
    let now = now();
    format!(
        r#""sub":"u1","aud":"fanlight","exp":{},"iat":{now},"nonce":"{nonce}","email":"ann@example.com","groups":["ops","staff"],"scope":"a b","at_hash":"x""#,
        now + 60
    )
}

impl Script {
    fn answer(&mut self, head: &str, body: &str) -> (u16, String) {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let url = &self.url;
        self.asked += 1;
        if self.is_down {
            return (503, String::new());
        }
        match path {
            "/.well-known/openid-configuration" => {
                let authorization = &self.authorization;
                let more = &self.metadata;
                (
                    200,
                    format!(
                        r#"{{"issuer":"{url}","authorization_endpoint":"{authorization}","token_endpoint":"{url}/token","jwks_uri":"{url}/keys"{more}}}"#
                    ),
                )
            }
            "/keys" => {
                let x = URL_SAFE_NO_PAD.encode(self.key.public_key());
                (
                    200,
                    format!(
                        r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{x}","kid":"k","use":"sig"}}]}}"#
                    ),
                )
            }
            "/token" => {
                self.exchanges.push(format!("{head}\n{body}"));
                if !body.contains("code=good&") {
                    return (400, r#"{"error":"invalid_grant"}"#.to_owned());
                }
                let iss = self.issuer_in_token.as_ref().unwrap_or(url);
                let claims = format!(r#"{{"iss":"{iss}",{}}}"#, self.claims);
                let message = format!(
                    "{}.{}",
                    URL_SAFE_NO_PAD.encode(&self.header),
                    URL_SAFE_NO_PAD.encode(claims)
                );
                let signer = if self.has_wrong_signature {
                    &key()
                } else {
                    &self.key
                };
                let signature = URL_SAFE_NO_PAD.encode(signer.sign(message.as_bytes()));
                (
                    200,
                    format!(
                        r#"{{"access_token":"a","token_type":"Bearer","id_token":"{message}.{signature}"}}"#
                    ),
                )
            }
            _ => (404, "{}".to_owned()),
        }
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Mutex<Script>>) {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).await.unwrap_or_default();
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let length = text
            .to_ascii_lowercase()
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.lines().next()?.parse().ok());
        let is_whole = text
            .split_once("\r\n\r\n")
            .is_some_and(|(_, body)| body.len() >= length.unwrap_or(0));
        if read == 0 || is_whole {
            break;
        }
    }
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let (status, body) = shared.lock().unwrap().answer(head, body);
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let _ = stream.write_all(answer.as_bytes()).await;
}

impl Issuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let script = Script {
            url: url.clone(),
            key: key(),
            metadata: String::new(),
            authorization: format!("{url}/authorize?tenant=1"),
            header: r#"{"alg":"EdDSA","kid":"k","typ":"JWT"}"#.to_owned(),
            claims: String::new(),
            issuer_in_token: None,
            has_wrong_signature: false,
            exchanges: Vec::new(),
            is_down: false,
            asked: 0,
        };
        let shared = Arc::new(Mutex::new(script));
        let served = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&served)));
            }
        });
        Self { url, shared }
    }

    fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.shared.lock().unwrap());
    }

    fn client(&self) -> OpenIdConnect {
        OpenIdConnect::new(self.settings(), OAuthLimits::default())
    }

    fn settings(&self) -> SignInSettings {
        SignInSettings {
            issuer: self.url.clone(),
            client_id: "fanlight".into(),
            client_secret: None,
            redirect_uri: "https://admin.example/sign-in/callback".into(),
            scopes: vec!["openid".into(), "groups".into()],
            name_claim: None,
            groups_claim: "groups".into(),
            scopes_claim: Some("scope".into()),
        }
    }
}

/// A sign-in that has begun, and whose ID token will have these claims.
async fn begun(
    issuer: &Issuer,
    client: &OpenIdConnect,
    change: impl FnOnce(String) -> String,
) -> Attempt {
    let begun = client.begin().await.unwrap();
    issuer.set(|script| script.claims = change(claims(&begun.attempt.nonce)));
    begun.attempt
}

async fn finish(client: &OpenIdConnect, attempt: &Attempt) -> Result<Arc<Identity>, SignInError> {
    client
        .finish(
            attempt,
            IssuerAnswer {
                code: Some("good"),
                state: Some(&attempt.state),
                ..Default::default()
            },
        )
        .await
}

#[tokio::test]
async fn browser_is_sent_with_state_nonce_and_challenge_and_signed_in() {
    let issuer = Issuer::start().await;
    let client = issuer.client();
    let Begun { location, attempt } = client.begin().await.unwrap();
    let location = reqwest::Url::parse(&location).unwrap();
    assert!(location.as_str().starts_with(&format!(
        "{}/authorize?tenant=1&response_type=code&",
        issuer.url
    )));
    let parameter = |name: &str| {
        location
            .query_pairs()
            .find(|(key, _)| key == name)
            .unwrap()
            .1
            .into_owned()
    };
    assert_eq!(parameter("client_id"), "fanlight");
    assert_eq!(
        parameter("redirect_uri"),
        "https://admin.example/sign-in/callback"
    );
    assert_eq!(parameter("scope"), "openid groups");
    assert_eq!(
        (parameter("state"), parameter("nonce")),
        (attempt.state.clone(), attempt.nonce.clone())
    );
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, attempt.verifier.as_bytes()));
    assert_eq!(
        (
            parameter("code_challenge"),
            parameter("code_challenge_method")
        ),
        (challenge, "S256".to_owned())
    );
    assert!(
        [&attempt.state, &attempt.nonce, &attempt.verifier]
            .iter()
            .all(|secret| secret.len() == 43)
    );
    assert!(!location.as_str().contains(&attempt.verifier));
    assert_ne!(client.begin().await.unwrap().attempt, attempt);

    issuer.set(|script| script.claims = claims(&attempt.nonce));
    let identity = finish(&client, &attempt).await.unwrap();
    assert_eq!(
        (&*identity.name, identity.source),
        ("ann@example.com", Source::Token)
    );
    assert_eq!(
        identity.principal,
        fanlight_canonical::identity::Principal::named(&issuer.url, "u1")
    );
    assert!(
        identity
            .groups
            .iter()
            .map(|group| &**group)
            .eq(["ops", "staff"])
    );
    assert!(
        identity.scopes.contains("a")
            && identity.scopes.contains("b")
            && !identity.scopes.contains("a b")
    );
    let exchange = issuer.shared.lock().unwrap().exchanges.remove(0);
    for part in [
        "grant_type=authorization_code",
        "client_id=fanlight",
        "redirect_uri=https%3A%2F%2Fadmin.example%2Fsign-in%2Fcallback",
    ] {
        assert!(exchange.contains(part), "{exchange}");
    }
    assert!(
        exchange.contains(&format!("code_verifier={}", attempt.verifier)),
        "{exchange}"
    );
}

#[tokio::test]
async fn issuer_that_fails_is_asked_once_at_a_time_and_not_again_for_a_while() {
    let issuer = Issuer::start().await;
    let client = issuer.client();
    issuer.set(|script| script.is_down = true);
    let began = std::time::Instant::now();
    for outcome in futures_util::future::join_all((0..400).map(|_| client.begin())).await {
        assert!(
            matches!(outcome, Err(SignInError::Unavailable(_))),
            "{outcome:?}"
        );
    }
    for _ in 0..400 {
        assert!(client.begin().await.is_err());
    }
    // An attempt makes two requests, and begins at least two seconds after the previous one.
    let attempts = 1 + usize::try_from(began.elapsed().as_secs() / 2).unwrap();
    let asked = issuer.shared.lock().unwrap().asked;
    assert!(asked <= 2 * attempts, "{asked} requests");
    issuer.set(|script| script.is_down = false);
    while client.begin().await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let asked = issuer.shared.lock().unwrap().asked;
    assert!(client.begin().await.is_ok());
    assert_eq!(
        issuer.shared.lock().unwrap().asked,
        asked,
        "its metadata are remembered"
    );
}

#[tokio::test]
async fn answers_of_other_sign_ins_and_issuers_are_refused() {
    let issuer = Issuer::start().await;
    let client = issuer.client();
    let attempt = begun(&issuer, &client, |claims| claims).await;
    let good = IssuerAnswer {
        code: Some("good"),
        state: Some(&attempt.state),
        iss: Some(&issuer.url),
        error: None,
    };
    let other = begun(&issuer, &client, |claims| claims).await;
    for wrong in [
        IssuerAnswer {
            state: None,
            ..good
        },
        IssuerAnswer {
            state: Some(""),
            ..good
        },
        IssuerAnswer {
            state: Some(&other.state),
            ..good
        },
        IssuerAnswer {
            iss: Some("https://evil.example"),
            ..good
        },
        IssuerAnswer {
            iss: Some(&format!("{}/", issuer.url)),
            ..good
        },
        IssuerAnswer {
            error: Some("access_denied"),
            ..good
        },
        IssuerAnswer { code: None, ..good },
        IssuerAnswer {
            code: Some(""),
            ..good
        },
        IssuerAnswer {
            code: Some("guess"),
            ..good
        },
    ] {
        assert!(
            matches!(
                client.finish(&attempt, wrong).await,
                Err(SignInError::Refused(_))
            ),
            "{wrong:?}"
        );
    }
    let error = IssuerAnswer {
        error: Some("<b>call 555</b>"),
        ..good
    };
    let refused = client
        .finish(&attempt, error)
        .await
        .unwrap_err()
        .to_string();
    assert!(!refused.contains("555"), "{refused}");
    // Only the wrong code was sent to the issuer.
    assert_eq!(issuer.shared.lock().unwrap().exchanges.len(), 1);
    // An issuer that names itself always does so (RFC 9207).
    issuer.set(|script| {
        script.metadata = r#","authorization_response_iss_parameter_supported":true"#.to_owned()
    });
    let client = issuer.client();
    let attempt = begun(&issuer, &client, |claims| claims).await;
    assert!(matches!(
        finish(&client, &attempt).await,
        Err(SignInError::Refused(_))
    ));
    let named = IssuerAnswer {
        code: Some("good"),
        state: Some(&attempt.state),
        iss: Some(&issuer.url),
        error: None,
    };
    assert!(client.finish(&attempt, named).await.is_ok());
}

#[tokio::test]
async fn id_tokens_of_others_are_refused() {
    let issuer = Issuer::start().await;
    let client = issuer.client();
    let replaced = |from: &'static str, to: String| {
        move |claims: String| {
            assert!(claims.contains(from), "{claims}");
            claims.replace(from, &to)
        }
    };
    let (past, future) = (now() - 100, now() + 1000);
    type Change = Box<dyn Fn(String) -> String>;
    let changes: Vec<Change> = vec![
        Box::new(replaced(r#""aud":"fanlight""#, r#""aud":"other""#.into())),
        Box::new(replaced(r#""aud":"fanlight""#, r#""aud":["other"]"#.into())),
        Box::new(replaced(
            r#""aud":"fanlight""#,
            r#""aud":["fanlight","other"]"#.into(),
        )),
        Box::new(replaced(
            r#""aud":"fanlight""#,
            r#""aud":"fanlight","azp":"other""#.into(),
        )),
        Box::new(replaced(r#""aud":"fanlight","#, String::new())),
        Box::new(replaced(r#""nonce":""#, r#""nonce":"x"#.into())),
        Box::new(replaced(r#""nonce":"#, r#""other":"#.into())),
        Box::new(replaced(r#""exp":"#, format!(r#""exp":{past},"was":"#))),
        Box::new(replaced(r#""exp":"#, r#""was":"#.into())),
        Box::new(replaced(r#""exp":"#, r#""exp":"never","was":"#.into())),
        Box::new(replaced(r#""iat":"#, format!(r#""iat":{future},"was":"#))),
        Box::new(replaced(r#""iat":"#, r#""was":"#.into())),
        Box::new(replaced(r#""sub":"u1""#, r#""sub":"""#.into())),
        Box::new(replaced(r#""sub":"u1""#, r#""sub":["u1"]"#.into())),
        Box::new(replaced(
            r#""sub":"u1""#,
            r#""sub":"u1","sub":"root""#.into(),
        )),
        Box::new(replaced(r#"["ops","staff"]"#, r#"{"ops":true}"#.into())),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let attempt = begun(&issuer, &client, change).await;
        assert!(
            matches!(
                finish(&client, &attempt).await,
                Err(SignInError::Refused(_))
            ),
            "{index}"
        );
    }
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"HS256","kid":"k"}"#,
        r#"{"alg":"EdDSA","kid":"k","jwk":{}}"#,
        r#"{"alg":"EdDSA","kid":"other"}"#,
    ] {
        issuer.set(|script| script.header = header.to_owned());
        let attempt = begun(&issuer, &client, |claims| claims).await;
        assert!(finish(&client, &attempt).await.is_err(), "{header}");
    }
    issuer.set(|script| script.header = r#"{"alg":"EdDSA","kid":"k"}"#.to_owned());
    issuer.set(|script| script.has_wrong_signature = true);
    let attempt = begun(&issuer, &client, |claims| claims).await;
    assert!(matches!(
        finish(&client, &attempt).await,
        Err(SignInError::Refused(_))
    ));
    issuer.set(|script| script.has_wrong_signature = false);
    issuer.set(|script| script.issuer_in_token = Some("https://evil.example".to_owned()));
    let attempt = begun(&issuer, &client, |claims| claims).await;
    assert!(matches!(
        finish(&client, &attempt).await,
        Err(SignInError::Refused(_))
    ));
    issuer.set(|script| script.issuer_in_token = None);
    let attempt = begun(
        &issuer,
        &client,
        replaced(
            r#""aud":"fanlight""#,
            r#""aud":["fanlight","other"],"azp":"fanlight""#.into(),
        ),
    )
    .await;
    assert!(finish(&client, &attempt).await.is_ok());
}

#[tokio::test]
async fn client_shows_its_secret_as_the_issuer_wants() {
    for (metadata, expected) in [
        ("", "authorization: basic zmfubglnahq6cyuymnq="),
        (
            r#","token_endpoint_auth_methods_supported":["client_secret_post","client_secret_basic"]"#,
            "authorization: basic zmfubglnahq6cyuymnq=",
        ),
        (
            r#","token_endpoint_auth_methods_supported":["client_secret_post"]"#,
            "client_id=fanlight&client_secret=s%22t",
        ),
    ] {
        let issuer = Issuer::start().await;
        issuer.set(|script| script.metadata = metadata.to_owned());
        let settings = SignInSettings {
            client_secret: Some("s\"t".into()),
            ..issuer.settings()
        };
        assert!(!format!("{settings:?}").contains("s\\\"t"));
        let client = OpenIdConnect::new(settings, OAuthLimits::default());
        let attempt = begun(&issuer, &client, |claims| claims).await;
        finish(&client, &attempt).await.unwrap();
        let exchange = issuer
            .shared
            .lock()
            .unwrap()
            .exchanges
            .remove(0)
            .to_ascii_lowercase();
        assert!(exchange.contains(expected), "{exchange}");
        assert_eq!(
            exchange.contains("client_secret="),
            expected.contains("client_secret="),
            "{exchange}"
        );
    }
}

#[tokio::test]
async fn issuers_that_are_down_or_send_browsers_to_scripts_begin_no_sign_in() {
    for authorization in [
        "javascript:alert(1)",
        "http://id.example/authorize",
        "data:text/html,x",
        "",
        "authorize",
    ] {
        let issuer = Issuer::start().await;
        issuer.set(|script| script.authorization = authorization.to_owned());
        let failed = issuer.client().begin().await;
        assert!(
            matches!(failed, Err(SignInError::Unavailable(_))),
            "{authorization}"
        );
    }
    let issuer = Issuer::start().await;
    let elsewhere = SignInSettings {
        issuer: format!("{}/tenant", issuer.url),
        ..issuer.settings()
    };
    assert!(
        OpenIdConnect::new(elsewhere, OAuthLimits::default())
            .begin()
            .await
            .is_err()
    );
    let down = SignInSettings {
        issuer: "http://127.0.0.1:1".into(),
        ..issuer.settings()
    };
    let failed = OpenIdConnect::new(down, OAuthLimits::default())
        .begin()
        .await
        .unwrap_err();
    assert!(!failed.to_string().contains("127.0.0.1"), "{failed}");
}
