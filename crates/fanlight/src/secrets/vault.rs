//! Secrets of Vault or OpenBao: the engine KV, version 2. The server and the sign-in are named by the variables that its own
//! clients read.

use std::path::PathBuf;
use std::time::Duration;

use fanlight_config::settings::{is_loopback, read_bounded};
use reqwest::{Certificate, Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::MAX_SIZE;

/// The token that Kubernetes gives a pod.
const POD_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// One value of a secret.
pub(super) async fn get(mount: &str, path: &str, key: &str) -> Result<String, String> {
    let server = Server::of_environment()?;
    let token = server.token().await?;
    let place = format!("{mount}/data/{path}");
    let request = server
        .request(Method::GET, &place)?
        .header("X-Vault-Token", token);
    let secret: Answer<Versioned> = server.answer(request, &place).await?;
    let value = secret
        .data
        .and_then(|versioned| versioned.data.get(key).cloned());
    match value {
        Some(Value::String(text)) => Ok(text),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(_) => Err(format!("{key:?} of {mount}/{path} is no text")),
        None => Err(format!("{mount}/{path} has no {key:?}")),
    }
}

/// What answers have of what is read.
#[derive(Deserialize)]
struct Answer<T> {
    data: Option<T>,
    auth: Option<SignedIn>,
}

#[derive(Deserialize)]
struct Versioned {
    #[serde(default)]
    data: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct SignedIn {
    client_token: String,
}

/// A server of secrets.
struct Server {
    url: Url,
    namespace: Option<String>,
    client: Client,
}

/// The first of these variables that is set.
fn variable(names: &[&str]) -> Option<String> {
    names
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

impl Server {
    fn of_environment() -> Result<Self, String> {
        let address =
            variable(&["VAULT_ADDR", "BAO_ADDR"]).ok_or("the variable `VAULT_ADDR` is not set")?;
        let url: Url = address.parse().map_err(|_| "`VAULT_ADDR` is no URL")?;
        let is_near = url.host_str().is_some_and(is_loopback);
        if url.scheme() != "https" && !(url.scheme() == "http" && is_near) {
            return Err(
                "`VAULT_ADDR` must begin with https: the token would be readable on its way"
                    .to_owned(),
            );
        }
        let mut client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(8));
        if is_near {
            client = client.no_proxy();
        }
        if let Some(file) = variable(&["VAULT_CACERT", "BAO_CACERT"]) {
            let read = read_bounded(&PathBuf::from(&file), MAX_SIZE << 4);
            let certificates = read
                .ok()
                .and_then(|pem| Certificate::from_pem_bundle(&pem).ok());
            let certificates =
                certificates.ok_or_else(|| format!("`VAULT_CACERT` {file} has no certificates"))?;
            client = certificates
                .into_iter()
                .fold(client, |client, one| client.add_root_certificate(one));
        }
        let client = client
            .build()
            .map_err(|error| format!("no HTTP client: {error}"))?;
        Ok(Self {
            url,
            namespace: variable(&["VAULT_NAMESPACE", "BAO_NAMESPACE"]),
            client,
        })
    }

    /// The token of the environment, or one for the identity of this pod.
    async fn token(&self) -> Result<String, String> {
        if let Some(token) = variable(&["VAULT_TOKEN", "BAO_TOKEN"]) {
            return Ok(token);
        }
        let role = variable(&["VAULT_K8S_ROLE"])
            .ok_or("neither `VAULT_TOKEN` is set nor `VAULT_K8S_ROLE`, for a sign-in with the identity of the pod")?;
        let file = variable(&["VAULT_K8S_TOKEN_FILE"]).unwrap_or_else(|| POD_TOKEN.to_owned());
        let jwt = read_bounded(&PathBuf::from(&file), MAX_SIZE)
            .map_err(|error| format!("cannot read {file}: {error}"))?;
        let jwt = String::from_utf8(jwt).map_err(|_| format!("{file} is no text"))?;
        let place = format!(
            "auth/{}/login",
            variable(&["VAULT_K8S_MOUNT"]).unwrap_or_else(|| "kubernetes".to_owned())
        );
        let asked = json!({ "role": role, "jwt": jwt.trim() }).to_string();
        let request = self
            .request(Method::POST, &place)?
            .header("Content-Type", "application/json")
            .body(asked);
        let answer: Answer<Value> = self.answer(request, &place).await?;
        Ok(answer.auth.ok_or("the sign-in gave no token")?.client_token)
    }

    fn request(&self, method: Method, place: &str) -> Result<RequestBuilder, String> {
        let mut url = self.url.clone();
        let whole = ["v1"].into_iter().chain(place.split('/'));
        url.path_segments_mut()
            .map_err(|()| "`VAULT_ADDR` is no URL of a server")?
            .pop_if_empty()
            .extend(whole);
        let request = self.client.request(method, url);
        Ok(match &self.namespace {
            Some(namespace) => request.header("X-Vault-Namespace", namespace),
            None => request,
        })
    }

    async fn answer<T: for<'a> Deserialize<'a>>(
        &self,
        request: RequestBuilder,
        place: &str,
    ) -> Result<T, String> {
        let host = self.url.host_str().unwrap_or_default();
        // The error has the URL, which has no secret, but more than helps.
        let sent = request
            .send()
            .await
            .map_err(|error| format!("{host} gives no answer: {}", error.without_url()))?;
        let status = sent.status();
        if !status.is_success() {
            return Err(format!(
                "{host} answers {status} for {place}{}",
                hint(status)
            ));
        }
        let body = bounded(sent)
            .await
            .ok_or_else(|| format!("{host} sends too much for {place}, or not all of it"))?;
        serde_json::from_slice(&body).map_err(|_| format!("{host} sends no secret for {place}"))
    }
}

fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN => ": its token may not read that, or is no longer good",
        StatusCode::NOT_FOUND => ": there is no such secret, or the engine is not KV version 2",
        _ => "",
    }
}

async fn bounded(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_SIZE {
            return None;
        }
    }
    Some(body)
}
