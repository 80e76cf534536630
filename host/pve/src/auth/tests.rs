use super::*;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn refusal(files: &[(&str, &str)]) -> String {
    Credentials::read_folder(folder(files).path())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_folder_holds_a_token_or_a_login() {
    let token = folder(&[("token-id", "aut@pve!full\n"), ("token-secret", "s3cret\n")]);
    assert_eq!(
        Credentials::read_folder(token.path()).unwrap().name(),
        "aut@pve!full"
    );
    let login = folder(&[("username", "root@pam"), ("password", "s3cret")]);
    assert_eq!(
        Credentials::read_folder(login.path()).unwrap().name(),
        "root@pam"
    );
}

#[test]
fn a_wrong_folder_says_what_is_there() {
    assert!(refusal(&[]).ends_with("none of them is there"));
    assert!(refusal(&[("token-id", "a@pve!b")]).ends_with("there is token-id"));
    assert!(
        refusal(&[("token-id", "aut"), ("token-secret", "x")])
            .contains("\"aut\" is not of the form user@realm!name")
    );
}

/// A request with the old token is slow, and the Secret gets a wrong one meanwhile.
#[tokio::test(start_paused = true)]
async fn f99_a_late_answer_to_the_old_credentials_does_not_accept_the_new_ones() {
    let secret = Arc::new(std::sync::Mutex::new("one"));
    let read = secret.clone();
    let auth = Auth::new(Arc::new(move || {
        Credentials::token("aut@pve!full", *read.lock().unwrap())
    }));
    let authorized = async || match auth.authorize(&[], false).await {
        Ok(Authorization::Headers {
            headers,
            generation,
        }) => (headers[header::AUTHORIZATION].clone(), generation),
        Ok(Authorization::Login { .. }) | Err(_) => panic!("a token needs no login"),
    };
    let (one, slow) = authorized().await;
    // Another request.
    auth.accepted(slow).await;

    *secret.lock().unwrap() = "wrong";
    tokio::time::advance(REREAD).await;
    let (wrong, generation) = authorized().await;
    assert_ne!(wrong, one);
    auth.accepted(slow).await;
    assert!(auth.refused(generation).await, "there are others to try");
    assert_eq!(authorized().await.0, one);
}

#[test]
fn secrets_are_never_shown() {
    let credentials = Credentials::token("aut@pve!full", "s3cret").unwrap();
    assert!(!format!("{credentials:?}").contains("s3cret"));
    assert!(!refusal(&[("token-id", "a@pve!b"), ("token-secret", "s3 x9")]).contains("x9"));
    let params = crate::request::Params::new().with("password", "s3cret");
    assert!(!format!("{params:?}").contains("s3cret"));
}
