import { createServer } from 'node:http'

/**
 * Answers `/metrics` and `/healthz` on a port of its own, and nothing else: a worker has no other. Rejects when the port can't be had;
 * later it ends with the process at the latest.
 */
export async function openMetricsPort(
  { port, host }: { port: number; host: string },
  metrics: { text(): Promise<string>; contentType: string },
): Promise<{ port: number; close(): void }> {
  const server = createServer({ headersTimeout: 5_000, requestTimeout: 5_000 }, (req, res) => {
    const [path] = req.url?.split('?') ?? []
    const answer = path === '/healthz' ? Promise.resolve('{"status":"ok"}') : path === '/metrics' ? metrics.text() : undefined
    if (req.method !== 'GET' || !answer) return void res.writeHead(404).end()
    answer.then(
      (text) => res.writeHead(200, { 'content-type': path === '/metrics' ? metrics.contentType : 'application/json' }).end(text),
      () => res.writeHead(500).end(),
    )
  })
  await new Promise<void>((done, fail) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE')
        error.message = `ONCEHOOK_WORKER_METRICS_PORT: port ${port} on ${host} is in use; each worker of a machine needs one of its own`
      fail(error)
    })
    server.listen(port, host, () => {
      server.removeAllListeners('error')
      done()
    })
  })
  server.on('error', () => undefined)
  const address = server.address()
  return {
    port: typeof address === 'object' && address !== null ? address.port : port,
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
}
