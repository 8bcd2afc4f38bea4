import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { afterAll } from 'vitest'
import type { Fetch } from '../../src/events/provider-calls.ts'
import type { RemoteKeyStore } from '../../src/events/receive.ts'
import { createRemoteKeys } from '../../src/events/remote-keys.ts'

export interface ProviderRequest {
  host: string
  /** Method and path. */
  line: string
  authorization: string | undefined
  body: Buffer
}

/** An HTTP server that stands in for whichever host a provider is fetched from; what it isn't told to answer is a 404. */
export async function standInProvider() {
  const answers = new Map<string, { text: string | ((request: ProviderRequest) => string); status: number }>()
  const requests: ProviderRequest[] = []
  const server = createServer((req, res) => {
    const answer = (body: Buffer) => {
      const { authorization, 'x-stands-in-for': host } = req.headers
      const request = { host: String(host), line: `${req.method} ${req.url}`, authorization, body }
      requests.push(request)
      const { text, status } = answers.get(request.line) ?? { text: '', status: 404 }
      res.writeHead(status, { location: '/elsewhere' }).end(typeof text === 'string' ? text : text(request))
    }
    buffer(req).then(answer, () => res.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  afterAll(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const fetch: Fetch = (url, init) => {
    const { host, pathname, search } = new URL(url)
    const headers = { ...(init.headers as Record<string, string>), 'x-stands-in-for': host }
    return globalThis.fetch(`http://127.0.0.1:${port}${pathname}${search}`, { ...init, headers })
  }
  let stores = new Map<number, RemoteKeyStore>()
  const storeAt = (nowSeconds: number) => {
    const log = { info: () => undefined, warn: () => undefined }
    const store = stores.get(nowSeconds) ?? createRemoteKeys({ log, fetch, now: () => nowSeconds * 1000 })
    stores.set(nowSeconds, store)
    return store
  }
  return {
    fetch,
    requests,
    /** Keys that are fetched from here, and forgotten at a reset: the service itself keeps good ones over a reload. */
    keysAt: (nowSeconds: number): RemoteKeyStore => ({
      ring: (source) => storeAt(nowSeconds).ring(source),
      fetch: (...of) => storeAt(nowSeconds).fetch(...of),
    }),
    answers: (line: string, text: string | ((request: ProviderRequest) => string), status = 200) =>
      void answers.set(line, { text, status }),
    reset() {
      answers.clear()
      stores = new Map()
      requests.length = 0
    },
  }
}
