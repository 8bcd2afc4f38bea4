import { once } from 'node:events'
import { createServer } from 'node:http'
import net, { type AddressInfo } from 'node:net'
import express from 'express'
import { afterAll, expect, test } from 'vitest'
import { readConfig } from '../src/config.ts'
import { eventRoutes } from '../src/events/routes.ts'
import { createLog } from '../src/log.ts'

const config = readConfig({ sources: { github: { provider: 'github', secrets: ['gh_secret_of_the_tests'] } } })
const app = express().use(
  eventRoutes({
    recorder: { record: () => Promise.reject(new Error('nothing here is signed')), delayMs: () => 0 },
    isWanted: () => false,
    now: Date.now,
    config: () => config,
    log: createLog('silent', 'test'),
    acknowledged: () => undefined,
    fingerprints: () => [],
    tallies: { answered: () => undefined, verified: () => undefined, stop: async () => undefined },
    refusals: { refused: () => undefined },
    keys: { ring: () => () => 'unknown', fetch: async () => () => 'unknown' },
    mostUnderWay: { requests: 1_000, bytes: 30 * 1024 * 1024, requestsInCalm: 1_000 },
  }),
)
const server = createServer(app).listen(0, '127.0.0.1')
await once(server, 'listening')
const { port } = server.address() as AddressInfo
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

const post = (body: string) => fetch(`http://127.0.0.1:${port}/webhooks/github`, { method: 'POST', body })

/** A client that announces a body, begins it and then waits. */
async function stall(headers: string): Promise<net.Socket> {
  const socket = net.connect(port, '127.0.0.1')
  socket.on('error', () => undefined)
  const arrived = once(server, 'request')
  socket.write(`POST /webhooks/github HTTP/1.1\r\nHost: x\r\n${headers}\r\n\r\n${/chunked/.test(headers) ? '1\r\nx\r\n' : 'x'}`)
  await arrived
  return socket
}

test.each([
  ['a long body', 'Content-Length: 26000000'],
  ['a body of unknown length', 'Transfer-Encoding: chunked'],
  ['a compressed body that may inflate to the limit', 'Content-Encoding: gzip\r\nContent-Length: 300000'],
])('I18 %s under way leaves room for small ones, but for no second one', async (_, headers) => {
  const first = await stall(headers)

  const small = await post('{}')
  const large = await fetch(`http://127.0.0.1:${port}/webhooks/github`, { method: 'POST', body: Buffer.alloc(8 * 1024 * 1024) })
  const { code } = (await large.json()) as { code: string }

  expect([small.status, large.status, code]).toEqual([401, 503, 'storage_unavailable'])
  expect(Number(large.headers.get('retry-after'))).toBeGreaterThan(0)
  first.destroy()
  // Its place is free again once its end is noticed.
  await expect
    .poll(
      async () =>
        (await fetch(`http://127.0.0.1:${port}/webhooks/github`, { method: 'POST', body: Buffer.alloc(8 * 1024 * 1024) })).status,
    )
    .toBe(401)
})
