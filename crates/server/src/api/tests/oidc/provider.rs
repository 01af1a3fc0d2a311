//! An OpenID provider on the loopback address, which follows the standard, and on request makes the mistakes and plays the
//! attacks that a client must notice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::{Form, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{self, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::clock::{Clock as _, SystemClock};
use crate::oidc::challenge_of;

pub(super) const CLIENT: &str = "belfry";
pub(super) const SECRET: &str = "s3cret & more";

/// A key that the provider signs with.
enum SigningKey {
    Rsa(ring::rsa::KeyPair),
    P256(EcdsaKeyPair),
}

impl SigningKey {
    /// The only RSA key: ring cannot create one.
    fn rsa() -> Self {
        let text: String = include_str!("rsa-key-for-tests.txt").split_whitespace().collect();
        Self::Rsa(ring::rsa::KeyPair::from_pkcs8(&STANDARD.decode(text).unwrap()).unwrap())
    }

    fn p256() -> Self {
        let (algorithm, random) = (&signature::ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::P256(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
    }

    const fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::P256(_) => "ES256",
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
            Self::P256(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
        }
    }

    fn jwk(&self, kid: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Rsa(key) => {
                let PublicKeyComponents { n, e } = PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "use": "sig", "kid": kid, "alg": "RS256", "n": text(&n), "e": text(&e)})
            }
            Self::P256(key) => {
                let point = key.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": text(&point[1..33]), "y": text(&point[33..])})
            }
        }
    }
}

/// What a test changes about the provider.
pub(super) struct Behavior {
    /// Claims that replace or add to those of an ID token; `null` removes one.
    pub(super) claims: Value,
    /// Fields that replace those of the header of an ID token.
    pub(super) header: Value,
    /// Claims of the user information; `None` if the provider has none.
    pub(super) user_info: Option<Value>,
    /// Fields that replace those of the metadata.
    pub(super) metadata: Value,
    /// Whether the signature belongs to another key than the published one.
    pub(super) forged: bool,
    /// Whether a code may be used again, against the standard.
    pub(super) accepts_codes_again: bool,
    /// Whether the token endpoint answers with an error of its own.
    pub(super) is_down: bool,
    key: SigningKey,
    kid: String,
    codes: BTreeMap<String, Code>,
    /// Requests to the token endpoint.
    pub(super) redeemed: usize,
}

#[derive(Clone)]
struct Code {
    nonce: String,
    challenge: String,
    redirect_uri: String,
}

type Shared = Arc<Mutex<Behavior>>;

/// The provider; it ends with the test.
pub(super) struct Provider {
    pub(super) issuer: String,
    behavior: Shared,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Provider {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let behavior = Arc::new(Mutex::new(Behavior {
            claims: json!({}),
            header: json!({}),
            user_info: None,
            metadata: json!({}),
            forged: false,
            accepts_codes_again: false,
            is_down: false,
            key: SigningKey::p256(),
            kid: "first".into(),
            codes: BTreeMap::new(),
            redeemed: 0,
        }));
        let state = (issuer.clone(), Arc::clone(&behavior));
        let app = Router::new()
            .route("/.well-known/openid-configuration", get(metadata))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .route("/me", get(user_info))
            .with_state(state);
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { issuer, behavior, server }
    }

    pub(super) fn behavior(&self) -> MutexGuard<'_, Behavior> {
        self.behavior.lock().unwrap()
    }

    /// Signs with an RSA key from now on.
    pub(super) fn use_rsa(&self) {
        let mut behavior = self.behavior();
        (behavior.key, behavior.kid) = (SigningKey::rsa(), "rsa".into());
    }

    /// Replaces the key.
    pub(super) fn rotate(&self, kid: &str) {
        let mut behavior = self.behavior();
        (behavior.key, behavior.kid) = (SigningKey::p256(), kid.into());
    }

    /// Logs the person in, as the page of the provider does, and returns code and state.
    pub(super) fn authorize(&self, url: &str) -> (String, String) {
        let url = reqwest::Url::parse(url).unwrap();
        assert!(url.as_str().starts_with(&format!("{}/authorize?", self.issuer)), "{url}");
        let all: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
        let of = |name: &str| all[name].clone();
        assert_eq!((of("response_type"), of("client_id")), ("code".into(), CLIENT.to_owned()));
        assert_eq!(of("code_challenge_method"), "S256");
        assert!(of("scope").split(' ').any(|scope| scope == "openid"));
        let code = format!("{:032x}", rand::random::<u128>());
        let (nonce, challenge, redirect_uri) = (of("nonce"), of("code_challenge"), of("redirect_uri"));
        self.behavior().codes.insert(code.clone(), Code { nonce, challenge, redirect_uri });
        (code, of("state"))
    }
}

type Handle = State<(String, Shared)>;

async fn metadata(State((issuer, behavior)): Handle) -> Json<Value> {
    let behavior = behavior.lock().unwrap();
    let mut metadata = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"),
        "authorization_response_iss_parameter_supported": true,
    });
    if behavior.user_info.is_some() {
        metadata["userinfo_endpoint"] = json!(format!("{issuer}/me"));
    }
    Json(merged(metadata, &behavior.metadata))
}

async fn keys(State((_, behavior)): Handle) -> Json<Value> {
    let behavior = behavior.lock().unwrap();
    let unknown = json!({"kty": "oct", "kid": "other", "k": "AAAA"});
    Json(json!({"keys": [unknown, behavior.key.jwk(&behavior.kid)]}))
}

async fn user_info(State((_, behavior)): Handle, headers: HeaderMap) -> Result<Json<Value>, StatusCode> {
    if headers.get("authorization").is_none_or(|value| value != "Bearer access") {
        return Err(StatusCode::UNAUTHORIZED);
    }
    Ok(Json(behavior.lock().unwrap().user_info.clone().unwrap()))
}

async fn token(
    State((issuer, behavior)): Handle,
    headers: HeaderMap,
    Form(form): Form<BTreeMap<String, String>>,
) -> (StatusCode, Json<Value>) {
    let refused = |error: &str| (StatusCode::BAD_REQUEST, Json(json!({"error": error})));
    let mut behavior = behavior.lock().unwrap();
    behavior.redeemed += 1;
    if behavior.is_down {
        return (StatusCode::BAD_GATEWAY, Json(json!("down")));
    }
    // RFC 6749, section 2.3.1: both parts are form-encoded first.
    let basic = format!("Basic {}", STANDARD.encode(format!("{CLIENT}:s3cret+%26+more")));
    if headers.get("authorization").is_none_or(|value| *value != *basic) {
        return refused("invalid_client");
    }
    let of = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    let Some(code) = behavior.codes.get(of("code")).cloned() else { return refused("invalid_grant") };
    if !behavior.accepts_codes_again {
        behavior.codes.remove(of("code"));
    }
    let is_valid = of("grant_type") == "authorization_code"
        && of("redirect_uri") == code.redirect_uri
        && challenge_of(of("code_verifier")) == code.challenge;
    if !is_valid {
        return refused("invalid_grant");
    }
    let now = SystemClock.now().as_millis() / 1_000;
    let claims = json!({
        "iss": issuer, "aud": CLIENT, "sub": "person-1", "nonce": code.nonce, "iat": now, "exp": now + 300,
        "email": "eve@example.com", "email_verified": true, "name": "Eve 易", "groups": ["devs"],
    });
    let id_token = sign(&behavior, &merged(claims, &behavior.claims));
    (StatusCode::OK, Json(json!({"access_token": "access", "token_type": "Bearer", "id_token": id_token})))
}

fn sign(behavior: &Behavior, claims: &Value) -> String {
    let header = json!({"alg": behavior.key.algorithm(), "kid": behavior.kid, "typ": "JWT"});
    let header = merged(header, &behavior.header);
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(&header), part(claims));
    let signature = match header["alg"].as_str().unwrap() {
        "none" => Vec::new(),
        // The key of an HMAC that an attacker knows: the public key.
        "HS256" => {
            use hmac::{Hmac, KeyInit as _, Mac as _};
            let key = behavior.key.jwk(&behavior.kid).to_string();
            let mac = Hmac::<sha2::Sha256>::new_from_slice(key.as_bytes()).unwrap();
            mac.chain_update(&message).finalize().into_bytes().to_vec()
        }
        _ if behavior.forged => SigningKey::p256().sign(message.as_bytes()),
        _ => behavior.key.sign(message.as_bytes()),
    };
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Returns an object with changed fields; `null` removes one.
fn merged(mut object: Value, change: &Value) -> Value {
    let fields = object.as_object_mut().unwrap();
    for (name, value) in change.as_object().unwrap() {
        match value {
            Value::Null => drop(fields.remove(name)),
            value => drop(fields.insert(name.clone(), value.clone())),
        }
    }
    object
}
