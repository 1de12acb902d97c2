//! Tokens bound to a key, and the DPoP proofs of requests (RFC 9449).

use fanlight_testkit::issuer::sha256;
use http::Method;

use super::*;

/// A client with a key and a token bound to it.
struct Client {
    key: SigningKey,
    token: String,
}

/// The credentials of a request.
#[derive(Clone)]
struct Request {
    scheme: &'static str,
    token: String,
    method: Method,
    path: &'static str,
    proofs: Vec<String>,
}

impl Client {
    fn new(issuer: &FakeIssuer, key: SigningKey) -> Self {
        let mut claims = issuer.claims("ann", AUDIENCE, "");
        claims["cnf"] = value!({"jkt": key.thumbprint()});
        Self {
            token: issuer.sign(&claims),
            key,
        }
    }

    fn claims(&self) -> Value {
        SigningKey::proof_claims("POST", AUDIENCE, &self.token)
    }

    fn proof(&self) -> String {
        self.key.sign(&self.key.proof_header(), &self.claims())
    }

    fn request(&self, proof: String) -> Request {
        let (token, proofs) = (self.token.clone(), vec![proof]);
        Request {
            scheme: "DPoP",
            token,
            method: Method::POST,
            path: "/mcp",
            proofs,
        }
    }
}

async fn send(tokens: &Arc<Tokens>, request: &Request) -> Result<Arc<Identity>, Denial> {
    let field = HeaderValue::try_from(format!("{} {}", request.scheme, request.token)).unwrap();
    let mut headers = HeaderMap::from_iter([(AUTHORIZATION, field)]);
    for proof in &request.proofs {
        headers.append("dpop", HeaderValue::try_from(proof).unwrap());
    }
    let (connection, method) = (ConnectionFacts::default(), &request.method);
    let credentials = Credentials {
        method,
        path: request.path,
        ..at_mcp(&headers, &connection)
    };
    let bearer = Bearer::shown_in(&headers)?.expect("a token");
    Arc::clone(tokens)
        .authenticate(bearer, &credentials)
        .outcome()
        .await
}

fn is_no_proof(outcome: &Result<Arc<Identity>, Denial>) -> bool {
    matches!(outcome, Err(Denial::InvalidProof(_)))
}

#[tokio::test]
async fn bound_token_is_accepted_with_a_new_proof_each_time() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    for key in [
        SigningKey::es256("k"),
        SigningKey::rs256("k"),
        SigningKey::eddsa("k"),
        SigningKey::es384("k"),
    ] {
        let ann = Client::new(&issuer, key);
        for _ in 0..2 {
            let identity = send(&tokens, &ann.request(ann.proof())).await.unwrap();
            assert_eq!(identity.principal, Principal::new(issuer.url(), "ann"));
        }
    }
}

#[tokio::test]
async fn url_is_compared_in_its_normal_form_without_query() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let ann = Client::new(&issuer, SigningKey::es256("k"));
    for url in [
        "HTTPS://MCP.example.com:443/mcp",
        "https://mcp.example.com/a/../mcp",
        "https://mcp.example.com/mcp?x#y",
    ] {
        let mut claims = ann.claims();
        claims["htu"] = url.into();
        let outcome = send(
            &tokens,
            &ann.request(ann.key.sign(&ann.key.proof_header(), &claims)),
        )
        .await;
        assert!(outcome.is_ok(), "{url}: {outcome:?}");
    }
}

#[tokio::test]
async fn stolen_token_is_of_no_use() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let (ann, eve) = (
        Client::new(&issuer, SigningKey::es256("a")),
        SigningKey::es256("e"),
    );
    // First without the token in memory, then with it.
    for _ in 0..2 {
        let proof = ann.proof();
        let without = Request {
            proofs: Vec::new(),
            ..ann.request(String::new())
        };
        assert!(is_no_proof(&send(&tokens, &without).await));
        for scheme in ["Bearer", "bearer"] {
            assert!(
                is_invalid(
                    &send(
                        &tokens,
                        &Request {
                            scheme,
                            ..ann.request(ann.proof())
                        }
                    )
                    .await
                ),
                "{scheme}"
            );
        }
        let of_eve = Client {
            key: SigningKey::es256("e"),
            token: ann.token.clone(),
        };
        assert!(is_no_proof(
            &send(&tokens, &ann.request(of_eve.proof())).await
        ));
        // Signed by one key, with the other one in the header.
        assert!(is_no_proof(
            &send(
                &tokens,
                &ann.request(eve.sign(&ann.key.proof_header(), &ann.claims()))
            )
            .await
        ));
        let twice = Request {
            proofs: vec![ann.proof(), ann.proof()],
            ..ann.request(String::new())
        };
        assert!(is_no_proof(&send(&tokens, &twice).await));
        assert!(send(&tokens, &ann.request(proof.clone())).await.is_ok());
        assert!(
            is_no_proof(&send(&tokens, &ann.request(proof)).await),
            "a proof is good once"
        );
    }
}

#[tokio::test]
async fn proof_is_of_one_request_of_now() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let ann = Client::new(&issuer, SigningKey::es256("k"));
    let changes = [
        ("htm", value!("GET")),
        ("htm", value!("post")),
        ("htm", value!(["POST"])),
        ("htu", value!("https://mcp.example.com/other")),
        ("htu", value!("http://mcp.example.com/mcp")),
        ("htu", value!("https://mcp.example.com/mcp/")),
        ("htu", value!("https://evil.example/mcp")),
        ("htu", value!("/mcp")),
        ("ath", value!(sha256("another token"))),
        ("iat", value!(seconds_from_now(-70))),
        ("iat", value!(seconds_from_now(40))),
        // It may have been used before the start of this process.
        ("iat", value!(seconds_from_now(-5))),
        ("iat", value!("now")),
        ("jti", value!("")),
        ("jti", value!(7)),
        ("jti", value!("x".repeat(2000))),
    ];
    let missing = ["htm", "htu", "ath", "iat", "jti"].map(|name| (name, Value::Null));
    for (name, with) in changes.into_iter().chain(missing) {
        let mut claims = ann.claims();
        match with {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            with => claims[name] = with,
        }
        let outcome = send(
            &tokens,
            &ann.request(ann.key.sign(&ann.key.proof_header(), &claims)),
        )
        .await;
        assert!(
            is_no_proof(&outcome),
            "{name} {}: {outcome:?}",
            claims[name]
        );
    }
    let get = Request {
        method: Method::GET,
        ..ann.request(ann.proof())
    };
    assert!(is_no_proof(&send(&tokens, &get).await));
    let elsewhere = Request {
        path: "/sse/message",
        ..ann.request(ann.proof())
    };
    assert!(is_no_proof(&send(&tokens, &elsewhere).await));
    assert!(send(&tokens, &ann.request(ann.proof())).await.is_ok());
}

#[tokio::test]
async fn header_of_a_proof_brings_a_public_key_and_nothing_else() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let ann = Client::new(&issuer, SigningKey::es256("k"));
    let mut private = ann.key.proof_header()["jwk"].clone();
    private["d"] = value!("c2VjcmV0");
    let changes = [
        ("typ", value!("JWT")),
        ("typ", value!("at+jwt")),
        ("typ", Value::Null),
        ("alg", value!("none")),
        ("alg", value!("HS256")),
        ("alg", value!("ES384")),
        ("jwk", Value::Null),
        ("jwk", value!("key")),
        ("jwk", private),
        ("jwk", value!({"kty": "oct", "k": "c2VjcmV0"})),
        ("crit", value!(["exp"])),
        ("jku", value!("https://evil.example/keys")),
        ("x5c", value!([])),
    ];
    for (name, with) in changes {
        let mut header = ann.key.proof_header();
        header[name] = with;
        let outcome = send(&tokens, &ann.request(ann.key.sign(&header, &ann.claims()))).await;
        assert!(is_no_proof(&outcome), "{header}: {outcome:?}");
    }
    for text in ["", "x", "a.b.c", "e30.e30.e30", &"x".repeat(20_000)] {
        assert!(
            is_no_proof(&send(&tokens, &ann.request(text.to_owned())).await),
            "{text}"
        );
    }
}

#[tokio::test]
async fn token_without_a_key_is_not_shown_as_bound() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![trusted(&issuer)]));
    let ann = Client {
        key: SigningKey::es256("k"),
        token: issuer.token("ann", AUDIENCE, ""),
    };
    assert!(is_invalid(&send(&tokens, &ann.request(ann.proof())).await));
    assert!(
        send(
            &tokens,
            &Request {
                scheme: "Bearer",
                ..ann.request(ann.proof())
            }
        )
        .await
        .is_ok()
    );
    for confirmation in [
        value!({"jkt": "short"}),
        value!({"jkt": ann.key.thumbprint(), "x5t#S256": ann.key.thumbprint()}),
        value!({"jkt": ann.key.thumbprint(), "kid": "k"}),
        value!({"jkt": 1}),
        value!({}),
    ] {
        let mut claims = issuer.claims("ann", AUDIENCE, "");
        claims["cnf"] = confirmation;
        let bound = Client {
            token: issuer.sign(&claims),
            key: SigningKey::es256("k"),
        };
        assert!(
            is_invalid(&send(&tokens, &bound.request(bound.proof())).await),
            "{claims}"
        );
    }
}

#[tokio::test]
async fn without_a_public_url_no_proof_is_accepted() {
    let issuer = FakeIssuer::start().await;
    let of_audience = IssuerSettings {
        audience: vec![AUDIENCE.to_owned()],
        ..trusted(&issuer)
    };
    let tokens = tokens(&OAuthSettings {
        public_url: None,
        ..settings(vec![of_audience])
    });
    let ann = Client::new(&issuer, SigningKey::es256("k"));
    assert!(is_no_proof(&send(&tokens, &ann.request(ann.proof())).await));
}

#[tokio::test]
async fn token_that_its_issuer_says_is_bound_needs_a_proof_as_well() {
    let issuer = FakeIssuer::start().await;
    let tokens = tokens(&settings(vec![introspected::introspected(&issuer)]));
    let (key, mut claims) = (SigningKey::es256("k"), issuer.claims("ann", AUDIENCE, ""));
    claims["cnf"] = value!({"jkt": key.thumbprint()});
    let token = issuer.opaque(claims);
    let ann = Client { key, token };
    for _ in 0..2 {
        assert!(send(&tokens, &ann.request(ann.proof())).await.is_ok());
        assert!(is_invalid(
            &send(
                &tokens,
                &Request {
                    scheme: "Bearer",
                    ..ann.request(ann.proof())
                }
            )
            .await
        ));
    }
}
