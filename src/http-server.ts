import cluster from 'node:cluster'
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'

/** What comes beyond is closed at once. An idle one costs some 20 kB, and no sender of webhooks keeps more than a few dozen. */
const MOST_CONNECTIONS = 2_000
/**
 * Node accepts one connection of a queue in a turn of its event loop, and a busy one takes milliseconds for a turn: of two thousand that
 * come at once the last would wait for seconds. So the system deals them out to some queues of one port.
 */
const QUEUES = 8

export interface HttpServer {
  port: number
  /** Takes no more connections, lets the running requests end, and closes what has none; what is left after the time is cut off. */
  close(forceAfterMs: number): Promise<void>
}

/** Listens on a port, 0 for any free one; `onError` is told of connections that could not be accepted. Rejects with the system's error. */
export async function openHttpServer(
  handler: RequestListener,
  { port, host, onError }: { port: number; host: string; onError(error: Error): void },
): Promise<HttpServer> {
  // The listener of Node answers a head after 5 s and a request after 15 s with 408; looked at each second.
  const http = createHttpServer(
    { headersTimeout: 5_000, requestTimeout: 15_000, connectionsCheckingInterval: 1_000, keepAliveTimeout: 65_000 },
    handler,
  )
  let connections = 0
  http.on('connection', (socket: Socket) => {
    connections += 1
    socket.once('close', () => {
      connections -= 1
    })
    if (connections > MOST_CONNECTIONS) socket.destroy()
  })
  let running = 0
  http.on('request', (_req, res) => {
    running += 1
    res.once('close', () => {
      running -= 1
    })
  })

  // Among siblings the parent accepts, and has nothing else to do; other systems don't share a port out evenly.
  const hasQueues = cluster.isPrimary && process.platform === 'linux'
  // A port that is shared would be shared with another service of the same user too. Two that start in the same moment aren't told apart.
  if (hasQueues && port !== 0) await close(await listen(createServer(), { port, host }))
  const shared = { host, reusePort: hasQueues }
  const servers = [await listen(http, { ...shared, port })]
  const { port: listening } = http.address() as AddressInfo
  while (hasQueues && servers.length < QUEUES) {
    const queue = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => http.emit('connection', socket))
    servers.push(await listen(queue, { ...shared, port: listening }))
  }
  for (const server of servers) server.on('error', onError)

  return {
    port: listening,
    async close(forceAfterMs) {
      // Node would wait for connections that were busy and are now kept alive, and for those that never sent anything.
      const idle = setInterval(() => (running === 0 ? http.closeAllConnections() : http.closeIdleConnections()), 50)
      const forced = setTimeout(() => http.closeAllConnections(), forceAfterMs)
      await Promise.all(servers.map(close))
      clearInterval(idle)
      clearTimeout(forced)
    },
  }
}

function listen(server: Server, address: { port: number; host: string; reusePort?: boolean }): Promise<Server> {
  return new Promise((done, fail) => {
    server.once('error', fail)
    // Connections that come while the process is busy wait rather than are dropped, which their senders would notice seconds later.
    server.listen({ ...address, backlog: MOST_CONNECTIONS }, () => {
      server.off('error', fail)
      done(server)
    })
  })
}

const close = (server: Server) => new Promise<void>((done) => void server.close(() => done()))
