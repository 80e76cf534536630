//! One request from its path to its answer.

use bytes::Bytes;
use http::{Request, Response, StatusCode, header, request::Parts};
use serde_json::{Value, json};

use super::{
    Kube, State,
    audit::Verb,
    delete::Deleted,
    error::ApiError,
    object::meta_str,
    request::{Params, Place, Target, WriteOptions, place, verb},
    scale,
    service::Body,
    watch::{Watch, present},
    write::{PatchFormat, Written},
};

/// What is answered when all went well.
enum Answer {
    Object(StatusCode, Value),
    Text(StatusCode, Bytes),
    Watch(Box<Watch>),
}

impl Kube {
    /// Answers one request. The effect, if any, happens before this suspends for the first time.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        match self.answer(&parts, &body) {
            Ok(Answer::Object(code, object)) => json_response(code, object.to_string().into()),
            Ok(Answer::Text(code, text)) => json_response(code, text),
            Ok(Answer::Watch(watch)) => {
                response(StatusCode::OK, "application/json", Body::watch(*watch))
            }
            Err(error) => refusal(&error),
        }
    }

    fn answer(&self, parts: &Parts, body: &Bytes) -> Result<Answer, ApiError> {
        let mut state = self.lock();
        let target = match place(parts.uri.path(), &state.registry)? {
            Place::Discovery(segments) => return discovery(&state, &segments),
            Place::Target(target) => target,
        };
        let params = Params::of(&parts.uri)?;
        let verb = verb(&parts.method, &target, &params)?;
        if !verb.mutates() {
            return self.read(&mut state, verb, &target, &params);
        }
        let result = write(&mut state, verb, &target, &params, parts, body);
        let (code, name) = match &result {
            Ok((code, written)) => (code.as_u16(), written.name()),
            Err(error) => (error.code, ""),
        };
        let agent = parts.headers.get(header::USER_AGENT);
        let agent = agent
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or_default();
        let dry_run = params.write_options().dry_run;
        let names_uid = names_uid(verb, &target, body);
        state.record(
            &self.user, agent, verb, &target, name, names_uid, dry_run, code,
        );
        match result? {
            (code, Written::Stored(stored)) => {
                Ok(Answer::Text(code, present(&target, &stored.bytes)))
            }
            (code, Written::Other(mut object)) => {
                if object["kind"] == target.resource.kind {
                    object["apiVersion"] = json!(target.resource.api_version(&target.version));
                }
                Ok(Answer::Object(code, object))
            }
        }
    }

    fn read(
        &self,
        state: &mut State,
        verb: Verb,
        target: &Target,
        params: &Params,
    ) -> Result<Answer, ApiError> {
        check_subresource(verb, target)?;
        match verb {
            Verb::Watch => Ok(Answer::Watch(Box::new(state.watch(
                self.clone(),
                target,
                params,
            )?))),
            Verb::List => Ok(Answer::Text(StatusCode::OK, state.list(target, params)?)),
            Verb::Get
            | Verb::Create
            | Verb::Update
            | Verb::Patch
            | Verb::Delete
            | Verb::DeleteCollection => {
                let stored = state.read(target)?;
                match target.subresource.as_str() {
                    "scale" => Ok(Answer::Object(
                        StatusCode::OK,
                        scale::get(target, &stored.value()),
                    )),
                    _ => Ok(Answer::Text(StatusCode::OK, present(target, &stored.bytes))),
                }
            }
        }
    }
}

fn discovery(state: &State, segments: &[String]) -> Result<Answer, ApiError> {
    match segments.first().map(String::as_str) {
        Some("healthz" | "readyz" | "livez") => {
            Ok(Answer::Text(StatusCode::OK, Bytes::from_static(b"ok")))
        }
        Some(_) | None => Ok(Answer::Object(StatusCode::OK, state.discover(segments)?)),
    }
}

/// Whether a delete or an eviction has the precondition of a UID.
fn names_uid(verb: Verb, target: &Target, body: &Bytes) -> bool {
    let options = match target.subresource.as_str() {
        "eviction" => "/deleteOptions",
        _ if verb == Verb::Delete => "",
        _ => return false,
    };
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let uid = body.pointer(&format!("{options}/preconditions/uid"));
    uid.is_some_and(Value::is_string)
}

fn write(
    state: &mut State,
    verb: Verb,
    target: &Target,
    params: &Params,
    parts: &Parts,
    body: &Bytes,
) -> Result<(StatusCode, Written), ApiError> {
    check_subresource(verb, target)?;
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if content_type.contains("protobuf") || content_type.contains("cbor") {
        return Err(ApiError::unsupported_media_type(
            "application/json, application/yaml",
        ));
    }
    let body: Value = match body.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(body).map_err(|error| {
            ApiError::bad_request(format!(
                "the body of the request is not valid JSON: {error}"
            ))
        })?,
    };
    let options = WriteOptions {
        manager: manager(params, parts),
        ..params.write_options()
    };
    let done = |written| Ok((StatusCode::OK, written));
    match (verb, target.subresource.as_str()) {
        (Verb::Create, "") => Ok((StatusCode::CREATED, state.create(target, body, &options)?)),
        (Verb::Create, "eviction") => {
            state.evict(target, &body, params)?;
            Ok((StatusCode::CREATED, success(StatusCode::CREATED)))
        }
        (Verb::Create, "binding") => {
            state.bind(target, &body)?;
            Ok((StatusCode::CREATED, success(StatusCode::CREATED)))
        }
        (Verb::Update, "finalize") => {
            let plain = Target {
                subresource: String::new(),
                ..target.clone()
            };
            done(state.update(&plain, body, &options)?)
        }
        (Verb::Update, _) => {
            let existed = state.read(target).is_ok();
            let code = if existed {
                StatusCode::OK
            } else {
                StatusCode::CREATED
            };
            Ok((code, state.update(target, body, &options)?))
        }
        (Verb::Patch, _) => {
            let format = PatchFormat::of(content_type).ok_or_else(|| {
                ApiError::unsupported_media_type(
                    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
                     application/apply-patch+yaml",
                )
            })?;
            if format == PatchFormat::Apply && params.text("fieldManager").is_empty() {
                return Err(ApiError::unprocessable(
                    "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
                ));
            }
            let existed = state.read(target).is_ok();
            let code = if existed {
                StatusCode::OK
            } else {
                StatusCode::CREATED
            };
            Ok((code, state.patch(target, format, body, &options)?))
        }
        (Verb::Delete, "") => done(Written::Other(deleted(
            target,
            state.delete(target, &params.delete_options(&body))?,
        ))),
        (Verb::DeleteCollection, "") => done(delete_collection(state, target, params, &body)?),
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn delete_collection(
    state: &mut State,
    target: &Target,
    params: &Params,
    body: &Value,
) -> Result<Written, ApiError> {
    let selector = params.selector(&target.resource)?;
    let keys: Vec<super::Key> = state
        .store
        .list(target.id(), target.namespace.as_deref(), None)
        .filter(|stored| selector.matches(stored))
        .map(|stored| stored.key.clone())
        .collect();
    for key in keys {
        let one = Target {
            namespace: target.resource.namespaced.then_some(key.namespace),
            name: Some(key.name),
            ..target.clone()
        };
        state.delete(&one, &params.delete_options(body))?;
    }
    Ok(success(StatusCode::OK))
}

/// The answer of a delete: the object while it lives on or when its kind returns it, else a Status that names it.
fn deleted(target: &Target, deleted: Deleted) -> Value {
    match deleted {
        Deleted::Terminating(object) => object,
        Deleted::Gone(object) if returns_deleted(target) => object,
        Deleted::Gone(object) => {
            let mut status = succeeded(StatusCode::OK);
            status["details"] = json!({
                "name": meta_str(&object, "name"),
                "kind": &*target.id().plural,
                "uid": meta_str(&object, "uid"),
            });
            if !target.id().group.is_empty() {
                status["details"]["group"] = json!(&*target.id().group);
            }
            status
        }
    }
}

/// The kinds whose registry sets `ReturnDeletedObject`.
fn returns_deleted(target: &Target) -> bool {
    const KINDS: [&str; 5] = [
        "pods",
        "persistentvolumes",
        "persistentvolumeclaims",
        "serviceaccounts",
        "storageclasses.storage.k8s.io",
    ];
    KINDS.iter().any(|kind| target.id().is(kind))
}

fn check_subresource(verb: Verb, target: &Target) -> Result<(), ApiError> {
    let served = target.resource.version(&target.version);
    let known = match target.subresource.as_str() {
        "" => true,
        "status" => served.is_some_and(|version| version.status) && verb != Verb::Create,
        "scale" => served.is_some_and(|version| version.scale.is_some()) && verb != Verb::Create,
        "eviction" | "binding" => target.id().is("pods") && verb == Verb::Create,
        "finalize" => target.id().is("namespaces"),
        _ => false,
    };
    match known {
        true => Ok(()),
        false => Err(ApiError::no_such_path()),
    }
}

/// The field manager: as asked, else the first word of the user agent, as on the real server.
fn manager(params: &Params, parts: &Parts) -> String {
    let agent = parts.headers.get(header::USER_AGENT);
    let agent = agent
        .and_then(|agent| agent.to_str().ok())
        .unwrap_or_default();
    let product = agent.split(['/', ' ']).next().unwrap_or_default();
    match (params.text("fieldManager"), product) {
        ("", "") => "unknown".to_owned(),
        ("", product) => product.to_owned(),
        (manager, _) => manager.to_owned(),
    }
}

fn success(code: StatusCode) -> Written {
    Written::Other(succeeded(code))
}

fn succeeded(code: StatusCode) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code.as_u16()})
}

fn refusal(error: &ApiError) -> Response<Body> {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(code, error.status().to_string().into());
    if let Some(seconds) = error.details["retryAfterSeconds"].as_u64() {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn json_response(code: StatusCode, text: Bytes) -> Response<Body> {
    response(code, "application/json", text.into())
}

fn response(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        http::HeaderValue::from_static(content_type),
    );
    response
}
