//! S9: the credentials go only where the file beside them allows it.

use super::*;

/// Somebody puts a server of his own beside the right one, in a list that is read anew while kproxide runs.
#[tokio::test(start_paused = true)]
async fn s9_the_token_goes_to_no_server_that_is_not_in_the_file_of_now() {
    // To a login, and to a question.
    let said = || data(json!({"ticket": "T", "CSRFPreventionToken": "C", "version": "9"}));
    let (first, first_asked) = endpoint("pve1:8006", move |_| said());
    let (thief, thief_asked) = endpoint("thief:8006", move |_| said());
    let files = Arc::new(Mutex::new(Some("pve1\n")));
    let read = files.clone();
    let source: CredentialSource = Arc::new(move || {
        let endpoints = *read.lock().unwrap();
        Credentials::of_files("lab", |name| {
            Ok(match name {
                "username" => Some("aut@pve".to_owned()),
                "password" => Some("x".to_owned()),
                "endpoints" => endpoints.map(str::to_owned),
                _ => None,
            })
        })
    });
    let client = Client::new(vec![first, thief], source, Concurrency::default());
    let refused = async || {
        let error = client.version().await.unwrap_err();
        assert_eq!(error.reaction(), Reaction::Freeze);
        error.chain()
    };
    let write = async |text: Option<&'static str>| {
        *files.lock().unwrap() = text;
        advance(Duration::from_secs(11)).await;
    };
    let told = refused().await;
    assert!(
        told.contains("spec.endpoints: thief:8006 is not in"),
        "{told}"
    );
    assert_eq!(client.sends_credentials_anywhere().await, Some(false));
    write(Some("# none\n")).await;
    let told = refused().await;
    assert!(told.contains("is empty, so that none is allowed"), "{told}");
    let asked = || first_asked.lines().len() + thief_asked.lines().len();
    assert_eq!(asked(), 0);

    // Allowed, and then a list that cannot be read: the last one counts.
    write(Some("pve1\nthief:8006")).await;
    client.version().await.unwrap();
    assert_eq!(first_asked.lines()[0], "POST /api2/json/access/ticket");
    write(Some("http://pve1")).await;
    client.version().await.unwrap();
    let unused = client.unused_credentials().await.unwrap();
    assert!(unused.contains("endpoints, line 1"), "{unused}");
    let before = asked();
    write(Some("pve1")).await;
    refused().await;
    assert_eq!((asked(), client.unused_credentials().await), (before, None));
    // Without the file they go wherever the settings say, as before there was one.
    write(None).await;
    client.version().await.unwrap();
    assert_eq!(asked(), before + 1);
    assert_eq!(client.sends_credentials_anywhere().await, Some(true));
}

/// The Secret gets a new token together with the list. Proxmox refuses the token, so that the one before stays in use: the list counts all the same.
#[tokio::test(start_paused = true)]
async fn s9_the_list_of_a_token_that_proxmox_refuses_counts_for_the_one_before() {
    let (endpoint, asked) =
        endpoint(
            "thief:8006",
            |request| match request.headers()["authorization"].to_str().unwrap() {
                "PVEAPIToken=aut@pve!full=one" => data(json!({"version": "9"})),
                _ => bare(401, "Authentication failed!"),
            },
        );
    let files = Arc::new(Mutex::new(("one", None)));
    let read = files.clone();
    let source: CredentialSource = Arc::new(move || {
        let (secret, endpoints) = *read.lock().unwrap();
        Credentials::of_files("lab", |name| {
            let text = match name {
                "token-id" => Some("aut@pve!full"),
                "token-secret" => Some(secret),
                "endpoints" => endpoints,
                _ => None,
            };
            Ok(text.map(str::to_owned))
        })
    });
    let client = Client::new(vec![endpoint], source, Concurrency::default());
    client.version().await.unwrap();
    *files.lock().unwrap() = ("two", Some("thief"));
    advance(Duration::from_secs(11)).await;
    client.version().await.unwrap();
    assert!(client.unused_credentials().await.is_some());
    let before = asked.lines().len();
    *files.lock().unwrap() = ("two", Some("pve1"));
    advance(Duration::from_secs(11)).await;
    client.version().await.unwrap_err();
    assert_eq!(asked.lines().len(), before);
}
