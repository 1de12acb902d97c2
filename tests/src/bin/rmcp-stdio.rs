//! The rmcp server over stdio. Usage: `rmcp-stdio LABEL legacy|modern|both`.

use std::error::Error;

use fanlight_tests::rmcp_server::RmcpServer;
use rmcp::ServiceExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(label), Some(era)) = (arguments.next(), arguments.next()) else {
        return Err("usage: rmcp-stdio LABEL legacy|modern|both".into());
    };
    let server = RmcpServer {
        label,
        era: era.parse()?,
    };
    server
        .serve(rmcp::transport::stdio())
        .await?
        .waiting()
        .await?;
    Ok(())
}
