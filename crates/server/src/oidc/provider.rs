//! The provider of the settings: its metadata, its keys, and the exchange of codes.
//!
//! Metadata and keys are read when they are needed, and kept for an hour. A token that no known key verifies makes the
//! server read the keys again, so a provider may replace them at any time. If the provider does not answer, known metadata
//! is used for longer.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use form_urlencoded::Serializer;
use reqwest::Url;
use serde::Deserialize;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use super::claims::{self, Claims, Expected};
use super::http::Http;
use super::jwt::{self, KeySet, Refused};
use super::pending::{Pending, challenge_of};
use super::{Failure, OidcProblem};
use crate::clock::{Clock, SystemClock};
use crate::config::OidcConfig;
use crate::networks::Networks;

/// Time for which metadata and keys are used without reading them again.
const FRESH_FOR: Duration = Duration::from_secs(3_600);
/// Time after a failure in which the provider is not asked for its metadata again.
const RETRY_AFTER: Duration = Duration::from_secs(3);
/// Most logins that wait for the provider at the same time.
const EXCHANGES_MAX: usize = 32;

/// Path of the callback, below the URL of the dashboard.
pub(crate) const CALLBACK: &str = "/api/v1/login/oidc/callback";

/// OpenID provider of the settings.
#[derive(Debug)]
pub struct Oidc {
    config: OidcConfig,
    redirect_uri: String,
    http: Http,
    metadata: Mutex<Cached<Metadata>>,
    keys: Mutex<Cached<KeySet>>,
    exchanges: Semaphore,
}

/// Person who has logged in at the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Identifier at the provider, the claim `sub`.
    pub subject: String,
    /// Name for a new account.
    pub name: Result<String, OidcProblem>,
    /// Display name for a new account.
    pub title: Option<String>,
    /// Groups.
    pub groups: Vec<String>,
}

/// Metadata of the provider (OpenID Connect Discovery 1.0, section 3). Other fields are ignored.
#[derive(Debug, Clone, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Response of the token endpoint.
#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct TokenError {
    error: String,
}

/// Value that was read from the provider.
#[derive(Debug)]
struct Cached<T> {
    value: Option<(Instant, T)>,
    failed_at: Option<Instant>,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self { value: None, failed_at: None }
    }
}

impl<T: Clone> Cached<T> {
    fn fresh(&self) -> Option<T> {
        self.value.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR).map(|(_, value)| value.clone())
    }

    /// Keeps a value that was read. After a failure, returns the former value if there is one.
    fn keep(&mut self, read: Result<T, Failure>) -> Result<T, Failure> {
        match read {
            Ok(value) => {
                *self = Self { value: Some((Instant::now(), value.clone())), failed_at: None };
                Ok(value)
            }
            Err(failure) => {
                self.failed_at = Some(Instant::now());
                let former = self.value.as_ref().map(|(_, value)| value.clone());
                former
                    .inspect(|_| tracing::warn!(error = %failure, "cannot read the OpenID provider"))
                    .ok_or(failure)
            }
        }
    }
}

impl Oidc {
    /// Creates it; the provider is asked later. `public_url` is the URL of the dashboard.
    pub fn new(config: OidcConfig, public_url: &str, networks: Networks) -> Self {
        let http = Http::new(networks, config.issuer.starts_with("http://"));
        Self {
            redirect_uri: format!("{}{CALLBACK}", public_url.trim_end_matches('/')),
            config,
            http,
            metadata: Mutex::default(),
            keys: Mutex::default(),
            exchanges: Semaphore::new(EXCHANGES_MAX),
        }
    }

    /// Returns the settings.
    pub fn config(&self) -> &OidcConfig {
        &self.config
    }

    /// Returns the URL at the provider to which the browser is sent.
    ///
    /// # Errors
    /// [`Failure`] if the metadata of the provider cannot be read.
    pub async fn authorization_url(&self, pending: &Pending) -> Result<String, Failure> {
        let metadata = self.metadata().await?;
        let mut url = self.http.endpoint("authorization_endpoint", &metadata.authorization_endpoint)?;
        let scopes = self.config.scopes.join(" ");
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.config.client_id)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("scope", &scopes)
            .append_pair("state", &pending.state)
            .append_pair("nonce", &pending.nonce)
            .append_pair("code_challenge", &challenge_of(&pending.verifier))
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// Exchanges the code of a callback, and returns the person who has logged in. `iss` is the parameter of the callback
    /// (RFC 9207).
    ///
    /// # Errors
    /// [`Failure`]: the provider does not answer, refuses the code, or has sent a token that is not for this login; or the
    /// person is in no group that may log in.
    pub async fn exchange(
        &self,
        code: &str,
        iss: Option<&str>,
        pending: &Pending,
    ) -> Result<Person, Failure> {
        let _place = self
            .exchanges
            .try_acquire()
            .map_err(|_| Failure::unavailable("too many logins wait for the provider"))?;
        let metadata = self.metadata().await?;
        let is_other = iss.is_some_and(|iss| iss != metadata.issuer);
        if is_other || iss.is_none() && metadata.authorization_response_iss_parameter_supported {
            return Err(Failure::invalid("the callback is of another issuer"));
        }
        let tokens = self.redeem(&metadata, code, pending).await?;
        let id_token = tokens.id_token.ok_or_else(|| {
            Failure::invalid("the provider has sent no ID token: the scopes must contain `openid`")
        })?;
        let mut claims = self.verified(&metadata, &id_token).await?;
        let expected = Expected {
            issuer: &self.config.issuer,
            client_id: &self.config.client_id,
            nonce: &pending.nonce,
            now: SystemClock.now().as_millis() / 1_000,
        };
        let subject = expected.check(&claims)?;
        if let (Some(endpoint), Some(token)) = (&metadata.userinfo_endpoint, &tokens.access_token)
            && self.lacks_claims(&claims)
        {
            let more = self.user_info(endpoint, token, &subject).await?;
            for (name, value) in more {
                // What is signed counts.
                claims.entry(name).or_insert(value);
            }
        }
        self.person(subject, &claims)
    }

    fn person(&self, subject: String, claims: &Claims) -> Result<Person, Failure> {
        let groups = claims::groups(claims, &self.config.groups_claim).unwrap_or_default();
        let allowed = &self.config.allowed_groups;
        if !allowed.is_empty() && !groups.iter().any(|group| allowed.contains(group)) {
            let detail =
                format!("person `{subject}` is in none of the groups of `server.oidc_allowed_groups`");
            return Err(Failure::new(OidcProblem::NotAllowed, detail));
        }
        let name = claims::account_name(claims, &self.config.user_claim).map_err(|failure| failure.problem);
        let title = claims::text(claims, "name").filter(|title| !title.is_empty()).map(str::to_owned);
        Ok(Person { subject, name, title, groups })
    }

    /// Returns whether the ID token lacks claims that the user information may have.
    fn lacks_claims(&self, claims: &Claims) -> bool {
        claims::account_name(claims, &self.config.user_claim).is_err()
            || claims::groups(claims, &self.config.groups_claim).is_none()
    }

    /// Reads the metadata of the provider.
    async fn metadata(&self) -> Result<Metadata, Failure> {
        let mut cached = self.metadata.lock().await;
        if let Some(metadata) = cached.fresh() {
            return Ok(metadata);
        }
        if cached.value.is_none() && cached.failed_at.is_some_and(|at| at.elapsed() < RETRY_AFTER) {
            return Err(Failure::unavailable("the provider did not answer a moment ago"));
        }
        let read = self.read_metadata().await;
        cached.keep(read)
    }

    async fn read_metadata(&self) -> Result<Metadata, Failure> {
        let issuer = &self.config.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let url = self.http.endpoint("server.oidc_issuer", &url)?;
        let metadata: Metadata = self.http.get("metadata", url).await?;
        if metadata.issuer != *issuer {
            let found: String = metadata.issuer.chars().take(200).collect();
            let detail =
                format!("the provider names itself `{found}`, but `server.oidc_issuer` is `{issuer}`");
            return Err(Failure::invalid(detail));
        }
        Ok(metadata)
    }

    /// Verifies the signature of an ID token. An unknown key may be a new one.
    async fn verified(&self, metadata: &Metadata, token: &str) -> Result<Claims, Failure> {
        let known = self.keys.lock().await.fresh();
        let is_known = known.is_some();
        let keys = match known {
            Some(keys) => keys,
            None => self.read_keys(metadata).await?,
        };
        let verified = match jwt::verify(token, &keys) {
            Err(Refused::UnknownKey) if is_known => jwt::verify(token, &self.read_keys(metadata).await?),
            verified => verified,
        };
        verified.map_err(|refused| match refused {
            Refused::UnknownKey => Failure::invalid("no key of the provider verifies the ID token"),
            Refused::Invalid(failure) => failure,
        })
    }

    async fn read_keys(&self, metadata: &Metadata) -> Result<KeySet, Failure> {
        let url = self.http.endpoint("jwks_uri", &metadata.jwks_uri)?;
        let mut cached = self.keys.lock().await;
        let keys: KeySet = self.http.get("keys", url).await?;
        *cached = Cached { value: Some((Instant::now(), keys.clone())), failed_at: None };
        Ok(keys)
    }

    /// Exchanges a code for tokens.
    async fn redeem(&self, metadata: &Metadata, code: &str, pending: &Pending) -> Result<Tokens, Failure> {
        let url = self.http.endpoint("token_endpoint", &metadata.token_endpoint)?;
        let (basic, body) = self.token_request(metadata, code, pending);
        let answer = self.http.post_form("token", url, basic, body).await?;
        if answer.is_success {
            return answer.json("the token response");
        }
        let error = answer.json::<TokenError>("the token response").map_err(|_| answer.failure("token"))?;
        let reason: String = error.error.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
        Err(Failure::new(OidcProblem::ProviderRefused, format!("the provider refused the code: `{reason}`")))
    }

    /// Returns the credentials of the client for the header, and the form. Without a secret, PKCE alone protects the code.
    fn token_request(&self, metadata: &Metadata, code: &str, pending: &Pending) -> (Option<String>, String) {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("code_verifier", &pending.verifier);
        let id = &self.config.client_id;
        let Some(secret) = &self.config.client_secret else {
            return (None, form.append_pair("client_id", id).finish());
        };
        let secret = secret.expose();
        // The default of the standard, which most providers support.
        let takes_basic = metadata
            .token_endpoint_auth_methods_supported
            .as_ref()
            .is_none_or(|methods| methods.iter().any(|method| method == "client_secret_basic"));
        if takes_basic {
            let [id, secret] =
                [id, secret].map(|text| form_urlencoded::byte_serialize(text.as_bytes()).collect());
            let credentials: [String; 2] = [id, secret];
            return (Some(BASE64.encode(credentials.join(":"))), form.finish());
        }
        (None, form.append_pair("client_id", id).append_pair("client_secret", secret).finish())
    }

    /// Reads claims that the ID token lacks.
    async fn user_info(&self, endpoint: &str, token: &str, subject: &str) -> Result<Claims, Failure> {
        let url: Url = self.http.endpoint("userinfo_endpoint", endpoint)?;
        let claims: Claims = self.http.get_as("user information", url, token).await?;
        match claims::text(&claims, "sub") {
            Some(found) if found == subject => Ok(claims),
            _ => Err(Failure::invalid("the user information is of another person")),
        }
    }
}
