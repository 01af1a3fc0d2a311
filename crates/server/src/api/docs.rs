//! HTML pages for users: the landing page, the API reference, and all refusals.
//!
//! Plain HTML, generated at the first request from the OpenAPI document and the table of codes, with one local stylesheet: the
//! pages are readable without access to a network.
//!
//! # Invariants
//! - Pages run no script and load nothing from other servers; the policy [`PAGE_POLICY`] enforces it.
//! - All texts are escaped; only backticks become markup.

use std::fmt::Write;
use std::sync::LazyLock;

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use serde_json::Value;
use utoipa::openapi::OpenApi;
use utoipa_axum::routes;

use super::extract::Path;
use super::problem::{ApiError, Code, excerpt};
use super::routes::Routes;
use super::{Api, document};
use crate::hash::short_hash;
use crate::web;

const STYLE: &str = include_str!("docs/style.css");
const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Methods in the order of a page.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// The OpenAPI document as JSON, and its `ETag`. Like the pages, it depends on the program alone, and is made at the first
/// request: that takes some 100 ms, for which a start need not wait.
static OPENAPI: LazyLock<(Bytes, HeaderValue)> = LazyLock::new(|| {
    let json = serde_json::to_vec_pretty(&document()).unwrap_or_default();
    let tag = format!("\"{:032x}\"", short_hash(&[&json]));
    (json.into(), HeaderValue::try_from(tag).expect("hex digits in quotes are a header value"))
});
static PAGES: LazyLock<Pages> = LazyLock::new(|| Pages::new(&document()));

pub(super) fn routes(routes: &mut Routes) {
    routes.open(&[], routes!(get_openapi));
}

/// Adds the pages. They are not part of the API, need no token, and show no data of this server.
pub(super) fn assets(router: Router<Api>) -> Router<Api> {
    router
        .route("/", get(dashboard))
        .route("/assets/{name}", get(asset))
        .route("/docs", get(async || html(&PAGES.reference)))
        .route("/docs/problems", get(async || html(&PAGES.problems)))
        .route(
            "/docs/style.css",
            get(async || served("text/css; charset=utf-8", Bytes::from_static(STYLE.as_bytes()))),
        )
}

/// Show this API as an OpenAPI document
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses(
    (status = 200, description = "OpenAPI 3.1", content_type = "application/json", body = Object, headers(
        ("ETag" = String, description = "Version of the document"),
    )),
))]
async fn get_openapi() -> Response {
    let (json, tag) = &*OPENAPI;
    let headers: [(HeaderName, HeaderValue); 3] = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        // It changes only with the server's version, and contains no data of this server.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (ETAG, tag.clone()),
    ];
    (headers, json.clone()).into_response()
}

/// Returns the dashboard; if it was not built, a page that says so.
async fn dashboard() -> Response {
    web::page().unwrap_or_else(|| html(&PAGES.landing))
}

/// Returns a file of the dashboard.
async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, ApiError> {
    let missing = || {
        ApiError::new(Code::NotFound, format!("the dashboard has no file `{}`", excerpt(&name)))
            .hint("reload the page: the server was upgraded")
    };
    web::asset(&name, &headers).ok_or_else(missing)
}

fn html(page: &Bytes) -> Response {
    served("text/html; charset=utf-8", page.clone())
}

fn served(content_type: &'static str, body: Bytes) -> Response {
    let headers: [(HeaderName, HeaderValue); 3] = [
        (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY)),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, body).into_response()
}

/// The generated pages.
pub(super) struct Pages {
    landing: Bytes,
    reference: Bytes,
    problems: Bytes,
}

impl Pages {
    pub(super) fn new(document: &OpenApi) -> Self {
        let document = serde_json::to_value(document).unwrap_or_default();
        Self {
            landing: landing().into(),
            reference: reference(&document).into(),
            problems: problems().into(),
        }
    }
}

fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<link rel=\"stylesheet\" href=\"/docs/style.css\">\n<main>\n{body}</main>\n</html>\n"
    )
}

fn landing() -> String {
    let version = env!("CARGO_PKG_VERSION");
    page(
        "Belfry",
        &format!(
            "<h1>Belfry <span class=\"quiet\">钟楼</span></h1>\n\
             <p>A Belfry server, version {version}, is running here.</p>\n\
             <p>Its dashboard was not built into it: <code>make web</code> builds it, with Node.js, and the next \
             build of the server has it at this address. The command line does everything:</p>\n\
             <pre><code>belfry submit -- echo hello\nbelfry job list\nbelfry logs JOB</code></pre>\n\
             <ul>\n<li><a href=\"/docs\">The REST API</a>, and the same as <a href=\"/openapi.json\">OpenAPI</a></li>\n\
             <li><a href=\"/docs/problems\">Every refusal</a>, and what to do about it</li>\n\
             <li><a href=\"/readyz?verbose\">Whether the server is ready</a></li>\n</ul>\n"
        ),
    )
}

fn problems() -> String {
    let mut body = String::from(
        "<p><a href=\"/docs\">The REST API</a></p>\n<h1>Refusals</h1>\n\
         <p>Whatever the server refuses, it answers with a problem document (RFC 9457), \
         <code>application/problem+json</code>. Its <code>code</code> is one of these words and keeps its meaning; \
         <code>detail</code> is for people and may change.</p>\n\
         <table>\n<tr><th>Code</th><th>Status</th><th>What it means</th><th>What to do</th></tr>\n",
    );
    for code in Code::ALL {
        let (word, status) = (code.as_str(), code.status());
        let (title, hint) = (marked(code.title()), marked(code.hint()));
        push(
            &mut body,
            format_args!(
                "<tr id=\"{word}\"><td><code>{word}</code></td><td>{status}</td><td>{title}</td><td>{hint}</td></tr>\n"
            ),
        );
    }
    body.push_str("</table>\n");
    page("Belfry: refusals", &body)
}

fn reference(document: &Value) -> String {
    let mut body = String::new();
    let info = &document["info"];
    push(&mut body, format_args!("<h1>The REST API of Belfry {}</h1>\n", escape(text(&info["version"]))));
    paragraphs(&mut body, text(&info["description"]));
    body.push_str("<p><a href=\"/openapi.json\">This as OpenAPI 3.1</a> · <a href=\"/docs/problems\">Every refusal</a> · <a href=\"#schemas\">Schemas</a></p>\n<nav>\n");
    let operations = operations(document);
    for operation in &operations {
        push(
            &mut body,
            format_args!("<a href=\"#{}\">{}</a>\n", escape(operation.id()), marked(operation.summary())),
        );
    }
    body.push_str("</nav>\n");
    for tag in list(&document["tags"]) {
        let name = text(&tag["name"]);
        push(&mut body, format_args!("<h2 id=\"tag-{0}\">{0}</h2>\n", escape(name)));
        paragraphs(&mut body, text(&tag["description"]));
        for operation in operations.iter().filter(|operation| operation.has_tag(name)) {
            operation.write(&mut body);
        }
    }
    body.push_str("<h2 id=\"schemas\">Schemas</h2>\n");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        write_schema(&mut body, name, schema);
    }
    page("Belfry: the REST API", &body)
}

struct Operation<'a> {
    method: &'static str,
    path: &'a str,
    value: &'a Value,
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let each = paths.flat_map(|(path, item)| {
        let methods = METHODS.into_iter().filter(|method| item.get(method).is_some());
        methods.map(move |method| Operation { method, path, value: &item[method] })
    });
    each.collect()
}

impl Operation<'_> {
    fn id(&self) -> &str {
        text(&self.value["operationId"])
    }

    fn summary(&self) -> &str {
        text(&self.value["summary"])
    }

    fn has_tag(&self, tag: &str) -> bool {
        list(&self.value["tags"]).any(|known| text(known) == tag)
    }

    fn write(&self, body: &mut String) {
        let (id, method, path) = (escape(self.id()), self.method.to_uppercase(), escape(self.path));
        push(
            body,
            format_args!(
                "<h3 id=\"{id}\">{}</h3>\n<p><span class=\"method\">{method}</span> <code>{path}</code></p>\n",
                marked(self.summary())
            ),
        );
        paragraphs(body, text(&self.value["description"]));
        self.write_parameters(body);
        for (media_type, content) in self.value["requestBody"]["content"].as_object().into_iter().flatten() {
            push(
                body,
                format_args!(
                    "<p>Body: <code>{}</code>, {}</p>\n",
                    escape(media_type),
                    type_of(&content["schema"])
                ),
            );
            if let Some(example) = content.get("example") {
                let example = serde_json::to_string_pretty(example).unwrap_or_default();
                push(body, format_args!("<pre><code>{}</code></pre>\n", escape(&example)));
            }
        }
        self.write_responses(body);
    }

    fn write_parameters(&self, body: &mut String) {
        let mut parameters = list(&self.value["parameters"]).peekable();
        if parameters.peek().is_none() {
            return;
        }
        body.push_str("<table>\n<tr><th>Parameter</th><th>In</th><th>Type</th><th></th></tr>\n");
        for parameter in parameters {
            let (name, place) = (escape(text(&parameter["name"])), escape(text(&parameter["in"])));
            let (kind, about) = (type_of(&parameter["schema"]), marked(text(&parameter["description"])));
            push(
                body,
                format_args!(
                    "<tr><td><code>{name}</code></td><td>{place}</td><td>{kind}</td><td>{about}</td></tr>\n"
                ),
            );
        }
        body.push_str("</table>\n");
    }

    fn write_responses(&self, body: &mut String) {
        body.push_str("<table>\n<tr><th>Answer</th><th>Body</th><th></th></tr>\n");
        for (status, response) in self.value["responses"].as_object().into_iter().flatten() {
            let contents = response["content"].as_object();
            let kinds: Vec<_> =
                contents.into_iter().flatten().map(|(_, content)| type_of(&content["schema"])).collect();
            let about = marked(text(&response["description"])).replace("\n\n", "<br>");
            push(
                body,
                format_args!("<tr><td>{status}</td><td>{}</td><td>{about}</td></tr>\n", kinds.join(", ")),
            );
        }
        body.push_str("</table>\n");
    }
}

fn write_schema(body: &mut String, name: &str, schema: &Value) {
    push(body, format_args!("<h3 id=\"schema-{0}\">{0}</h3>\n", escape(name)));
    paragraphs(body, text(&schema["description"]));
    let Some(properties) = schema["properties"].as_object() else {
        push(body, format_args!("<p>{}</p>\n", type_of(schema)));
        return;
    };
    let required: Vec<_> = list(&schema["required"]).map(text).collect();
    body.push_str("<table>\n<tr><th>Field</th><th>Type</th><th></th></tr>\n");
    for (field, property) in properties {
        let kind = type_of(property);
        let must =
            if required.contains(&field.as_str()) { " <span class=\"quiet\">(required)</span>" } else { "" };
        let about = marked(text(&property["description"]));
        push(
            body,
            format_args!(
                "<tr><td><code>{}</code>{must}</td><td>{kind}</td><td>{about}</td></tr>\n",
                escape(field)
            ),
        );
    }
    body.push_str("</table>\n");
}

/// Returns a short description of a schema, with links to named schemas.
fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|link| link.rsplit('/').next()) {
        return format!("<a href=\"#schema-{0}\">{0}</a>", escape(name));
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        if let Some(choices) = schema[key].as_array() {
            let choices: Vec<_> =
                choices.iter().filter(|choice| choice["type"] != "null").map(type_of).collect();
            return choices.join(" or ");
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<_> = words.iter().map(|word| format!("<code>{}</code>", escape(text(word)))).collect();
        return words.join(" ");
    }
    if schema.get("items").is_some() {
        return format!("list of {}", type_of(&schema["items"]));
    }
    if let Some(properties) = schema["properties"].as_object() {
        let fields: Vec<_> = properties
            .iter()
            .map(|(name, kind)| format!("<code>{}</code>: {}", escape(name), type_of(kind)))
            .collect();
        return format!("{{ {} }}", fields.join(", "));
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(text).find(|kind| *kind != "null").unwrap_or_default(),
        kind => text(kind),
    };
    match schema["format"].as_str() {
        Some(format) => format!("{} <span class=\"quiet\">({})</span>", escape(kind), escape(format)),
        None => escape(kind),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn push(body: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _written = body.write_fmt(text);
}

fn paragraphs(body: &mut String, text: &str) {
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        push(body, format_args!("<p>{}</p>\n", marked(paragraph)));
    }
}

/// Escapes text, and converts backticks to code elements.
fn marked(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for (i, part) in text.split('`').enumerate() {
        let part = escape(part);
        if i % 2 == 1 {
            push(&mut out, format_args!("<code>{part}</code>"));
        } else {
            out.push_str(&part);
        }
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_name_every_route_every_schema_and_every_code() {
        let document = serde_json::to_value(document()).unwrap();
        let reference = reference(&document);
        for operation in operations(&document) {
            assert!(!operation.id().is_empty() && !operation.summary().is_empty(), "{}", operation.path);
            assert!(reference.contains(&format!("<h3 id=\"{}\">", operation.id())), "{}", operation.path);
        }
        for name in document["components"]["schemas"].as_object().unwrap().keys() {
            assert!(reference.contains(&format!("id=\"schema-{name}\"")), "{name}");
        }
        let problems = problems();
        for code in Code::ALL {
            assert!(problems.contains(&format!("<tr id=\"{}\">", code.as_str())), "{code:?}");
        }
    }

    #[test]
    fn the_pages_load_nothing_from_elsewhere_and_run_nothing() {
        let document = serde_json::to_value(document()).unwrap();
        for page in [landing(), problems(), reference(&document)] {
            // A description may name a URL, but no attribute has one.
            for foreign in ["=\"http", "='http", "=http", "<script", "style=\"", "src="] {
                assert!(!page.contains(foreign), "{foreign}");
            }
        }
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(marked("a `<b>` & \"c\""), "a <code>&lt;b&gt;</code> &amp; &quot;c&quot;");
    }
}
