//! Logins at an OpenID provider: accounts, groups, the command line, and attacks.
//!
//! [`provider`] is a provider of our own, which also makes mistakes. Claims are tested one by one in the module `oidc` of
//! the server.

mod provider;

use std::net::IpAddr;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, COOKIE, HOST, LOCATION, SET_COOKIE};
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use self::provider::{CLIENT, Provider, SECRET};
use super::{Answer, World};
use crate::config::{ClientSecret, Exposure, OidcConfig, ServerConfig, TlsConfig};
use crate::listener::Peer;
use crate::networks::Networks;
use crate::oidc::challenge_of;

const URL: &str = "http://localhost:7070";
const CALLBACK: &str = "/api/v1/login/oidc/callback";

/// A server that is connected to a provider.
struct Scene {
    world: World,
    provider: Provider,
}

/// A browser: the cookies that it keeps.
#[derive(Default, Clone)]
struct Browser {
    cookies: Vec<(String, String)>,
}

impl Scene {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A server that creates accounts, with changed settings.
    async fn with(change: impl FnOnce(&mut OidcConfig)) -> Self {
        let provider = Provider::start().await;
        let issuer = provider.issuer.clone();
        let world = World::with(|config| {
            config.public_url = Some(URL.into());
            config.private_networks = Networks::loopback();
            let mut oidc = OidcConfig::new(issuer, CLIENT);
            oidc.client_secret = Some(ClientSecret::new(SECRET));
            oidc.create_accounts = true;
            change(&mut oidc);
            config.oidc = Some(oidc);
        })
        .await;
        Self { world, provider }
    }

    /// Starts a login in a browser, and returns the URL of the provider.
    async fn start(&self, browser: &mut Browser, body: Value) -> String {
        let answer = browser.post(&self.world.router, "/api/v1/login/oidc", body).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        answer.json()["url"].as_str().unwrap().to_owned()
    }

    /// Returns the address of the callback, after the person has logged in at the provider.
    fn callback(&self, url: &str) -> String {
        let (code, state) = self.provider.authorize(url);
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("code", &code)
            .append_pair("state", &state)
            .append_pair("iss", &self.provider.issuer);
        format!("{CALLBACK}?{}", query.finish())
    }

    /// Logs a browser in, and returns where the callback leads to.
    async fn log_in(&self, browser: &mut Browser) -> String {
        let url = self.start(browser, json!({})).await;
        let callback = self.callback(&url);
        browser.get(&self.world.router, &callback).await.header(LOCATION.as_str()).to_owned()
    }

    /// Logs a new browser in with changed claims, and returns where the callback leads to.
    async fn log_in_with(&self, claims: Value) -> String {
        self.provider.behavior().claims = claims;
        let to = self.log_in(&mut Browser::default()).await;
        self.provider.behavior().claims = json!({});
        to
    }

    /// Returns action, outcome, actor and code of the entries of the audit log about logins, oldest first.
    async fn recorded(&self) -> Vec<String> {
        self.world.services.audit.close().await;
        let entries = self.world.get("/api/v1/audit").await.json()["items"].as_array().unwrap().clone();
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or("-").to_owned();
        let shown = |it: &Value| ["outcome", "actor", "code"].map(|field| text(it, field)).join(" ");
        entries.iter().rev().filter(|it| it["action"] == "log_in").map(shown).collect()
    }
}

impl Browser {
    async fn send(&mut self, router: &Router, request: Request<Body>) -> Answer {
        let (mut parts, body) = request.into_parts();
        parts.headers.insert(HOST, "localhost:7070".parse().unwrap());
        parts.extensions.insert(Peer::Connection(IpAddr::from([10, 0, 0, 1])));
        if !self.cookies.is_empty() {
            let all: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            parts.headers.insert(COOKIE, all.join("; ").parse().unwrap());
        }
        let response = router.clone().oneshot(Request::from_parts(parts, body)).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        for cookie in parts.headers.get_all(SET_COOKIE) {
            let (pair, attributes) = cookie.to_str().unwrap().split_once("; ").unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            if !attributes.contains("Max-Age=0") {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        Answer { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&mut self, router: &Router, path: &str) -> Answer {
        let request = Request::get(path).header("sec-fetch-site", "cross-site");
        self.send(router, request.body(Body::empty()).unwrap()).await
    }

    /// Sends a request as a page of this server does.
    async fn own(&mut self, router: &Router, method: Method, path: &str, body: Value) -> Answer {
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
        let request = request.header("sec-fetch-site", "same-origin").header("x-belfry-csrf", "1");
        self.send(router, request.body(Body::from(body.to_string())).unwrap()).await
    }

    async fn post(&mut self, router: &Router, path: &str, body: Value) -> Answer {
        self.own(router, Method::POST, path, body).await
    }

    async fn me(&mut self, router: &Router) -> Answer {
        self.own(router, Method::GET, "/api/v1/me", json!({})).await
    }
}

/// H2. The first login creates an account without a role, and later ones find it.
#[tokio::test]
async fn a_person_logs_in_at_the_provider() {
    let scene = Scene::new().await;
    let methods = scene.world.get("/api/v1/login/methods").await.json();
    assert_eq!(methods, json!({"oidc": {"name": "OpenID", "url": URL}}));
    let mut browser = Browser::default();
    assert_eq!(scene.log_in(&mut browser).await, "/");
    let me = browser.me(&scene.world.router).await.json();
    assert_eq!((&me["name"], &me["session"]), (&json!("eve@example.com"), &json!(true)), "{me}");
    assert_eq!(
        (&me["title"], &me["groups"], &me["rights"]),
        (&json!("Eve 易"), &json!(["devs"]), &json!([]))
    );
    let account = scene.world.get("/api/v1/accounts/eve@example.com").await.json();
    assert_eq!(account["created_by"], "oidc");
    assert_eq!(account["login"]["oidc"]["issuer"], scene.provider.issuer);
    assert_eq!(account["login"]["oidc"]["subject"], "person-1");
    assert_eq!(account["login"]["sessions"], 1);
    assert!(browser.cookies.iter().all(|(name, _)| !name.contains("oidc")), "the login has ended");

    // With another name and mail address at the provider, it is the same account.
    let renamed = json!({"email": "eve.lee@example.com", "name": "Eve Lee"});
    assert_eq!(scene.log_in_with(renamed).await, "/");
    let accounts = scene.world.get("/api/v1/accounts").await;
    assert_eq!(accounts.column("name"), ["eve@example.com"]);
    assert_eq!(scene.recorded().await, ["allowed eve@example.com -", "allowed eve@example.com -"]);
    let out = browser.own(&scene.world.router, Method::DELETE, "/api/v1/session", json!({})).await;
    assert_eq!(out.status, StatusCode::NO_CONTENT);
    assert_eq!(browser.me(&scene.world.router).await.code(), "401 unauthenticated");
}

#[tokio::test]
async fn a_server_without_a_provider_offers_none() {
    let world = World::new().await;
    assert_eq!(world.get("/api/v1/login/methods").await.json(), json!({}));
    let mut browser = Browser::default();
    let started = browser.post(&world.router, "/api/v1/login/oidc", json!({})).await;
    assert_eq!(started.code(), "404 oidc_not_configured");
    assert_eq!(browser.get(&world.router, CALLBACK).await.code(), "404 oidc_not_configured");
}

/// What a malicious or broken provider, or an attacker between, sends. None of it logs a person in.
#[tokio::test]
async fn an_id_token_that_is_not_for_this_login_is_refused() {
    let scene = Scene::new().await;
    let now = crate::clock::Clock::now(&crate::clock::SystemClock).as_millis() / 1_000;
    for claims in [
        json!({"nonce": "another"}),
        json!({"nonce": null}),
        json!({"aud": "another"}),
        json!({"aud": ["belfry", "another"]}),
        json!({"azp": "another"}),
        json!({"iss": "https://another.example"}),
        json!({"exp": now - 120}),
        json!({"exp": null}),
        json!({"iat": now - 3_600}),
        json!({"iat": now + 3_600}),
        json!({"nbf": now + 3_600}),
        json!({"sub": null}),
        json!({"sub": "x".repeat(300)}),
    ] {
        let to = scene.log_in_with(claims.clone()).await;
        assert!(
            ["/#login_error=invalid_response", "/#login_error=no_account_name"].contains(&&*to),
            "{claims}: {to}"
        );
    }
    for header in [
        json!({"alg": "none"}),
        json!({"alg": "HS256"}),
        json!({"alg": "RS256"}),
        json!({"kid": "unknown"}),
        json!({"crit": ["exp"]}),
        json!({"alg": "none", "kid": null}),
    ] {
        scene.provider.behavior().header = header.clone();
        assert_eq!(scene.log_in_with(json!({})).await, "/#login_error=invalid_response", "{header}");
    }
    scene.provider.behavior().header = json!({});
    scene.provider.behavior().forged = true;
    assert_eq!(scene.log_in_with(json!({})).await, "/#login_error=invalid_response");
    scene.provider.behavior().header = json!({"kid": null});
    assert_eq!(scene.log_in_with(json!({})).await, "/#login_error=invalid_response");
    assert_eq!(scene.world.get("/api/v1/accounts").await.column("name"), [""; 0]);
    scene.provider.behavior().forged = false;
    assert_eq!(scene.log_in_with(json!({})).await, "/", "without a key id, each key is tried");
}

#[tokio::test]
async fn the_provider_may_replace_its_key_at_any_time() {
    let scene = Scene::new().await;
    assert_eq!(scene.log_in(&mut Browser::default()).await, "/");
    scene.provider.rotate("second");
    assert_eq!(scene.log_in(&mut Browser::default()).await, "/");
    scene.provider.rotate("second");
    assert_eq!(scene.log_in(&mut Browser::default()).await, "/", "a new key with the id of the former one");
    scene.provider.use_rsa();
    assert_eq!(scene.log_in(&mut Browser::default()).await, "/");
}

#[tokio::test]
async fn a_callback_works_once_and_only_in_the_browser_of_its_start() {
    let scene = Scene::new().await;
    let router = &scene.world.router;
    let expired = "/#login_error=expired";
    let mut browser = Browser::default();
    let url = scene.start(&mut browser, json!({})).await;
    let callback = scene.callback(&url);
    // An attacker sends the own callback to another browser, which would then be logged in as the attacker.
    let mut other = Browser::default();
    assert_eq!(other.get(router, &callback).await.header("location"), expired);
    let foreign = scene.start(&mut other, json!({})).await;
    assert_eq!(other.get(router, &callback).await.header("location"), expired, "with a login of its own");
    for state in ["", "x", &"x".repeat(43)] {
        let path = format!("{CALLBACK}?code=x&state={state}");
        assert_eq!(browser.get(router, &path).await.header("location"), expired);
    }
    let forged = Browser { cookies: vec![("belfry_7070_oidc".into(), "v1.00000000.AAAA".into())] };
    assert_eq!(forged.clone().get(router, &callback).await.header("location"), expired);
    assert_eq!(scene.provider.behavior().redeemed, 0, "the provider was not asked");

    let before = browser.clone();
    assert_eq!(browser.get(router, &callback).await.header("location"), "/");
    assert_eq!(browser.get(router, &callback).await.header("location"), expired, "the cookie is deleted");
    // The whole browser state is restored, and the provider accepts its code again.
    assert_eq!(
        before.clone().get(router, &callback).await.header("location"),
        "/#login_error=provider_refused"
    );
    scene.provider.behavior().accepts_codes_again = true;
    let again = scene.callback(&url);
    assert_eq!(before.clone().get(router, &again).await.header("location"), expired, "the session exists");
    assert_eq!(other.get(router, &scene.callback(&foreign)).await.header("location"), "/");
    let sessions = scene.world.get("/api/v1/tokens?name=eve@example.com&session=true").await;
    assert_eq!(sessions.column("id").len(), 2);
}

/// RFC 9207: the response of another provider that the person uses too.
#[tokio::test]
async fn a_callback_of_another_issuer_is_refused() {
    let scene = Scene::new().await;
    for iss in ["https%3A%2F%2Fanother.example", ""] {
        let mut browser = Browser::default();
        let url = scene.start(&mut browser, json!({})).await;
        let (code, state) = scene.provider.authorize(&url);
        let iss = if iss.is_empty() { String::new() } else { format!("&iss={iss}") };
        let answer =
            browser.get(&scene.world.router, &format!("{CALLBACK}?code={code}&state={state}{iss}")).await;
        assert_eq!(answer.header("location"), "/#login_error=invalid_response");
    }
    assert_eq!(scene.provider.behavior().redeemed, 0);
}

#[tokio::test]
async fn errors_of_the_provider_are_shown_on_the_login_page() {
    let scene = Scene::new().await;
    for (error, problem) in [
        ("access_denied", "access_denied"),
        ("server_error", "provider_refused"),
        ("%3Cscript%3E", "provider_refused"),
    ] {
        let mut browser = Browser::default();
        let url = scene.start(&mut browser, json!({})).await;
        let (_, state) = scene.provider.authorize(&url);
        let path = format!("{CALLBACK}?error={error}&error_description=x&state={state}");
        let answer = browser.get(&scene.world.router, &path).await;
        assert_eq!(answer.header("location"), format!("/#login_error={problem}"));
    }
    scene.provider.behavior().is_down = true;
    assert_eq!(scene.log_in_with(json!({})).await, "/#login_error=provider_unavailable");
    let recorded = scene.recorded().await;
    assert!(recorded.contains(&"denied (unknown) provider_unavailable".to_owned()), "{recorded:?}");
}

/// Names are chosen by the provider, and sometimes by its users. They select no account.
#[tokio::test]
async fn a_name_does_not_take_over_an_account() {
    let scene = Scene::new().await;
    scene.world.account("eve@example.com", &[("admin", "*")]).await;
    assert_eq!(scene.log_in_with(json!({})).await, "/#login_error=account_exists");
    let unverified = json!({"email": "bob@example.com", "email_verified": false});
    assert_eq!(scene.log_in_with(unverified).await, "/#login_error=unverified_email");
    assert_eq!(scene.log_in_with(json!({"email": "not a name"})).await, "/#login_error=no_account_name");
    assert_eq!(scene.log_in_with(json!({"email": null})).await, "/#login_error=no_account_name");
    // Another person with the mail address of the first one, who has an account.
    assert_eq!(scene.log_in_with(json!({"email": "dan@example.com"})).await, "/");
    let second = json!({"email": "dan@example.com", "sub": "person-2"});
    assert_eq!(scene.log_in_with(second).await, "/#login_error=account_exists");
}

#[tokio::test]
async fn only_known_persons_and_allowed_groups_log_in() {
    let known = Scene::with(|oidc| oidc.create_accounts = false).await;
    assert_eq!(known.log_in_with(json!({})).await, "/#login_error=no_account");
    let scene = Scene::with(|oidc| oidc.allowed_groups = vec!["devs".into(), "ops".into()]).await;
    assert_eq!(scene.log_in_with(json!({"groups": ["guests"]})).await, "/#login_error=not_allowed");
    assert_eq!(scene.log_in_with(json!({"groups": null})).await, "/#login_error=not_allowed");
    assert_eq!(scene.log_in_with(json!({})).await, "/");
    assert_eq!(
        scene.log_in_with(json!({"groups": []})).await,
        "/#login_error=not_allowed",
        "each login is checked"
    );
    let path = "/api/v1/accounts/eve@example.com";
    scene.world.json(Method::PATCH, path, json!({"disabled": true}), &[]).await;
    assert_eq!(scene.log_in_with(json!({})).await, "/#login_error=account_disabled");
    let recorded = scene.recorded().await;
    assert!(recorded.contains(&"denied eve@example.com account_disabled".to_owned()), "{recorded:?}");
}

/// An administrator decides which account a person has: the person uses an invitation.
#[tokio::test]
async fn an_invitation_links_an_existing_account() {
    let scene = Scene::with(|oidc| oidc.create_accounts = false).await;
    scene.world.account("ann", &[("viewer", "*")]).await;
    let created = scene.world.post("/api/v1/accounts/ann/invitation", json!({})).await.json();
    let secret = created["secret"].as_str().unwrap();
    let mut browser = Browser::default();
    let url = scene.start(&mut browser, json!({"invitation": secret, "return_to": "/jobs?x=1"})).await;
    let callback = scene.callback(&url);
    assert_eq!(browser.get(&scene.world.router, &callback).await.header("location"), "/jobs?x=1");
    assert_eq!(browser.me(&scene.world.router).await.json()["name"], "ann");
    let used = browser.post(&scene.world.router, "/api/v1/login/oidc", json!({"invitation": secret})).await;
    assert_eq!(used.code(), "404 invitation_not_found");
    assert_eq!(scene.log_in_with(json!({})).await, "/", "the person is known now");
    let unlinked = scene.world.delete("/api/v1/accounts/ann/oidc").await;
    assert_eq!(unlinked.status, StatusCode::NO_CONTENT);
    assert_eq!(browser.me(&scene.world.router).await.code(), "401 unauthenticated");
    assert_eq!(scene.log_in_with(json!({})).await, "/#login_error=no_account");
}

/// H2. Roles of groups follow the bindings at once, and the groups at each login.
#[tokio::test]
async fn groups_have_roles() {
    let scene = Scene::new().await;
    let router = &scene.world.router;
    let mut browser = Browser::default();
    scene.log_in(&mut browser).await;
    let jobs = "/api/v1/jobs?namespace=finance";
    let reads = async |browser: &mut Browser| {
        browser.own(router, Method::GET, jobs, json!({})).await.status == StatusCode::OK
    };
    assert!(!reads(&mut browser).await);
    let binding = json!({"role": "viewer", "group": "devs", "namespace": "finance"});
    let bound = scene.world.json(Method::PUT, "/api/v1/bindings", binding, &[]).await;
    assert_eq!(bound.status, StatusCode::OK, "{}", bound.text());
    assert_eq!((&bound.json()["group"], bound.json().get("account")), (&json!("devs"), None));
    assert!(reads(&mut browser).await);
    let account = scene.world.get("/api/v1/accounts/eve@example.com").await.json();
    assert_eq!(account["roles"], json!([{"role": "viewer", "namespace": "finance", "group": "devs"}]));
    let listed = scene.world.get("/api/v1/bindings?group=devs").await;
    assert_eq!(listed.column("group"), ["devs"]);
    // The provider takes the group away: the next login, in any browser, tells so.
    scene.log_in_with(json!({"groups": ["guests"]})).await;
    assert!(!reads(&mut browser).await);
    scene.log_in_with(json!({})).await;
    assert!(reads(&mut browser).await);
    let unbound = scene.world.delete("/api/v1/bindings?role=viewer&group=devs&namespace=finance").await;
    assert_eq!(unbound.status, StatusCode::NO_CONTENT);
    assert!(!reads(&mut browser).await);
    for wrong in [
        json!({"role": "viewer", "namespace": "finance"}),
        json!({"role": "viewer", "account": "ann", "group": "devs", "namespace": "finance"}),
        json!({"role": "viewer", "group": "", "namespace": "finance"}),
    ] {
        let refused = scene.world.json(Method::PUT, "/api/v1/bindings", wrong, &[]).await;
        assert_eq!(refused.code(), "422 invalid_spec");
    }
}

/// Some providers put only the identifier into the ID token.
#[tokio::test]
async fn claims_come_from_the_user_information_too() {
    let scene = Scene::new().await;
    let lacking = json!({"email": null, "email_verified": null, "groups": null});
    let info = |sub: &str| json!({"sub": sub, "email": "eve@example.com", "email_verified": true, "groups": ["ops"]});
    scene.provider.behavior().user_info = Some(info("person-2"));
    assert_eq!(scene.log_in_with(lacking.clone()).await, "/#login_error=invalid_response");
    scene.provider.behavior().user_info = Some(info("person-1"));
    assert_eq!(scene.log_in_with(lacking).await, "/");
    let account = scene.world.get("/api/v1/accounts/eve@example.com").await.json();
    assert_eq!(account["login"]["oidc"]["groups"], json!(["ops"]));
}

#[tokio::test]
async fn metadata_of_another_issuer_and_endpoints_elsewhere_are_refused() {
    for (metadata, expected) in [
        (json!({"issuer": "https://another.example"}), "503 oidc_unavailable"),
        (json!({"authorization_endpoint": "javascript:alert(1)"}), "503 oidc_unavailable"),
        (json!({"authorization_endpoint": null}), "503 oidc_unavailable"),
    ] {
        let scene = Scene::new().await;
        scene.provider.behavior().metadata = metadata.clone();
        let started = Browser::default().post(&scene.world.router, "/api/v1/login/oidc", json!({})).await;
        assert_eq!(started.code(), expected, "{metadata}");
    }
    // The metadata of a cloud is no key set.
    let scene = Scene::new().await;
    scene.provider.behavior().metadata = json!({"jwks_uri": "http://169.254.169.254/latest/"});
    assert_eq!(scene.log_in_with(json!({})).await, "/#login_error=provider_unavailable");
}

#[tokio::test]
async fn a_provider_in_a_private_network_must_be_allowed() {
    let provider = Provider::start().await;
    let issuer = provider.issuer.clone();
    let world = World::with(|config| {
        config.public_url = Some(URL.into());
        config.oidc = Some(OidcConfig::new(issuer, CLIENT));
    })
    .await;
    let started = Browser::default().post(&world.router, "/api/v1/login/oidc", json!({})).await;
    assert_eq!(started.code(), "503 oidc_unavailable");
}

#[tokio::test]
async fn the_start_is_only_for_pages_of_this_server() {
    let scene = Scene::new().await;
    let router = &scene.world.router;
    for path in ["https://evil.example", "//evil.example", "/\\evil.example"] {
        let answer = Browser::default().post(router, "/api/v1/login/oidc", json!({"return_to": path})).await;
        assert_eq!(answer.code(), "422 invalid_spec", "{path}");
    }
    let foreign = Request::post("/api/v1/login/oidc")
        .header(CONTENT_TYPE, "application/json")
        .header("origin", "https://evil.example")
        .header("sec-fetch-site", "cross-site");
    let answer = Browser::default().send(router, foreign.body(Body::from("{}")).unwrap()).await;
    assert_eq!(answer.code(), "403 cross_site");
    let challenge = challenge_of("secret");
    let path = format!("/api/v1/login/oidc/cli?port=4711&state=s&challenge={challenge}");
    assert_eq!(Browser::default().get(router, &path).await.code(), "403 cross_site");
}

/// The cookie survives the way through the provider, which is another site, and with TLS no other host can set it.
#[tokio::test]
async fn the_cookie_of_a_login_is_bound_to_the_host() {
    let provider = Provider::start().await;
    let by_proxy = |config: &mut ServerConfig| config.exposure = Exposure::BehindProxy;
    let by_server = |config: &mut ServerConfig| {
        config.tls = Some(TlsConfig { cert_file: "server.pem".into(), key_file: "server-key.pem".into() });
    };
    for terminates_tls in [&by_proxy as &dyn Fn(&mut ServerConfig), &by_server] {
        let issuer = provider.issuer.clone();
        let world = World::with(|config| {
            config.public_url = Some("https://localhost:7070".into());
            config.private_networks = Networks::loopback();
            config.oidc = Some(OidcConfig::new(issuer, CLIENT));
            terminates_tls(config);
        })
        .await;
        let answer = Browser::default().post(&world.router, "/api/v1/login/oidc", json!({})).await;
        let cookie = answer.header("set-cookie");
        assert!(cookie.starts_with("__Host-belfry_7070_oidc=v1."), "{cookie}");
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=600; Secure"), "{cookie}");
    }
}

/// Servers share only the store: the start, the callback and the exchange may each arrive at another one.
#[tokio::test]
async fn a_login_may_continue_at_another_server() {
    let scene = Scene::new().await;
    let other = crate::api::router(scene.world.services.clone());
    let mut browser = Browser::default();
    let url = scene.start(&mut browser, json!({})).await;
    let callback = scene.callback(&url);
    assert_eq!(browser.get(&other, &callback).await.header("location"), "/");
    assert_eq!(browser.me(&scene.world.router).await.status, StatusCode::OK);
}

/// Starts a login of the command line, and returns the parameters that it gets from the browser.
async fn cli_result(scene: &Scene, browser: &mut Browser, verifier: &str) -> Vec<(String, String)> {
    let challenge = challenge_of(verifier);
    let path = format!("/api/v1/login/oidc/cli?port=4711&state=cli-1&challenge={challenge}&remember=true");
    // The browser was opened by the command line.
    let request = Request::get(&path).header("sec-fetch-site", "none").body(Body::empty()).unwrap();
    let started = browser.send(&scene.world.router, request).await;
    assert_eq!(started.status, StatusCode::SEE_OTHER, "{}", started.text());
    let callback = scene.callback(started.header("location"));
    let to = browser.get(&scene.world.router, &callback).await.header("location").to_owned();
    let url = reqwest::Url::parse(&to).unwrap();
    assert!(to.starts_with("http://127.0.0.1:4711/?"), "{to}");
    url.query_pairs().into_owned().collect()
}

#[tokio::test]
async fn the_command_line_exchanges_its_code_once() {
    let scene = Scene::new().await;
    let mut browser = Browser::default();
    let result = cli_result(&scene, &mut browser, "secret").await;
    assert_eq!(result[1], ("state".to_owned(), "cli-1".to_owned()));
    let code = &result[0].1;
    assert_eq!(
        browser.me(&scene.world.router).await.code(),
        "401 unauthenticated",
        "the browser has no session"
    );
    let exchange = async |code: &str, verifier: &str| {
        let request = Request::post("/api/v1/login/oidc/exchange").header(CONTENT_TYPE, "application/json");
        let body = json!({"code": code, "verifier": verifier}).to_string();
        Browser::default().send(&scene.world.router, request.body(Body::from(body)).unwrap()).await
    };
    assert_eq!(exchange(code, "guess").await.code(), "401 oidc_login_failed");
    assert_eq!(exchange("v1.00000000.AAAA", "secret").await.code(), "401 oidc_login_failed");
    let session = exchange(code, "secret").await;
    assert_eq!(session.status, StatusCode::OK, "{}", session.text());
    assert_eq!(session.json()["me"]["name"], "eve@example.com");
    let secret = session.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!(scene.world.get_as(&secret, "/api/v1/me").await.status, StatusCode::OK);
    assert_eq!(exchange(code, "secret").await.code(), "401 oidc_login_failed", "a code works once");
}

#[tokio::test]
async fn a_failure_is_shown_by_the_command_line() {
    let scene = Scene::with(|oidc| oidc.create_accounts = false).await;
    let result = cli_result(&scene, &mut Browser::default(), "secret").await;
    assert_eq!(result[0], ("error".to_owned(), "no_account".to_owned()));
    for wrong in ["port=80&state=s", "port=4711&state=", "port=4711&state=a%20b", "port=4711"] {
        let path = format!("/api/v1/login/oidc/cli?{wrong}&challenge={}", challenge_of("x"));
        let request = Request::get(&path).header("sec-fetch-site", "none").body(Body::empty()).unwrap();
        let answer = Browser::default().send(&scene.world.router, request).await;
        assert_eq!(answer.code(), "400 invalid_parameter", "{wrong}");
    }
}
