import type { AddressInfo } from 'node:net'
import type { Express } from 'express'

/** Listens on a free port, tells the parent its address, and ends with it. */
export function listen(app: Express): void {
  for (const end of ['disconnect', 'SIGTERM']) process.once(end, () => process.exit())
  const server = app.listen(0, '127.0.0.1', () => {
    const { port } = server.address() as AddressInfo // it listens on TCP
    process.send?.({ ready: `http://127.0.0.1:${port}` })
  })
  server.keepAliveTimeout = 65_000
}
