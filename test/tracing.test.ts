import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, expect, test, vi } from 'vitest'
import { createLog } from '../src/log.ts'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { openTracing } from '../src/tracing.ts'
import { testDatabase } from './support/database.ts'
import { apiKey, payment, quick, secrets, start, until } from './support/processes.ts'

vi.setConfig({ testTimeout: 90_000 })

interface Span {
  traceId: string
  spanId: string
  parentSpanId?: string
  name: string
  kind: number
  startTimeUnixNano: string
  endTimeUnixNano: string
  attributes: { key: string; value: Record<string, string> }[]
  status: { code?: number }
}
interface Posted {
  path: string
  headers: IncomingHttpHeaders
  text: string
  resource: Record<string, string>
  spans: Span[]
}

/** What takes the spans in place of a collector. */
async function collector(status = 200) {
  const posted: Posted[] = []
  const server = createServer((req, res) => {
    const chunks: Buffer[] = []
    req.on('data', (chunk: Buffer) => chunks.push(chunk))
    req.once('end', () => {
      const text = Buffer.concat(chunks).toString()
      const [{ resource, scopeSpans }] = JSON.parse(text).resourceSpans
      posted.push({
        path: req.url ?? '',
        headers: req.headers,
        text,
        resource: attributesOf(resource.attributes),
        spans: scopeSpans.flatMap((scope: { spans: Span[] }) => scope.spans),
      })
      res.writeHead(status).end('{}')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  afterAll(() => {
    server.closeAllConnections()
    server.close()
  })
  return {
    posted,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: () => posted.flatMap((it) => it.spans),
  }
}

const attributesOf = (list: Span['attributes']) =>
  Object.fromEntries(list.map(({ key, value }) => [key, Object.values(value)[0] ?? '']))
const quiet = createLog('silent', 'test')
const settings = (otlpEndpoint: string, tracedShare = 1) => ({ otlpEndpoint, serviceName: 'oncehook', tracedShare })

test('I17 a request, its event and its email are one trace over both processes, without address, body or secret', async () => {
  const { url: databaseUrl } = await testDatabase()
  const sandbox = await startInboxiliSandbox({ apiKey, sendsPerMinute: 1_000_000 })
  sandbox.armReports({ kind: 'never' }, { times: 'always' })
  const { posted, url, spans } = await collector()
  const environment = {
    ...quick,
    DATABASE_URL: databaseUrl,
    INBOXILI_BASE_URL: sandbox.url,
    ONCEHOOK_TRACING: 'otlp',
    OTEL_EXPORTER_OTLP_ENDPOINT: `${url}/`,
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20collector-token,x-tenant=a',
    OTEL_SERVICE_NAME: 'mails',
  }
  const processes = await Promise.all([start('serve', environment), start('worker', environment)])
  const { headers, body } = payment('trace1', { email: 'trace-canary@example.com' })
  await fetch(`${processes[0].url}/webhooks/stripe`, { method: 'POST', headers: { ...headers, 'x-request-id': 'req-1' }, body })
  await until(() => processes[1].log().some(({ msg }) => msg === 'answer recorded'), 'the email is sent')

  for (const process of processes) process.kill('SIGTERM')
  expect((await Promise.all(processes.map(({ exited }) => exited))).map(({ code }) => code)).toEqual([0, 0])
  await sandbox.close()

  const root = spans().find(({ name }) => name === 'receive')
  const others = spans().filter((span) => span !== root)
  expect(root).toMatchObject({
    kind: 2,
    traceId: expect.stringMatching(/^[0-9a-f]{32}$/),
    spanId: expect.stringMatching(/^[0-9a-f]{16}$/),
  })
  expect(root?.parentSpanId).toBeUndefined()
  expect(attributesOf(root?.attributes ?? [])).toEqual({ source: 'stripe', result: 'accepted' })
  expect(others.map(({ name, kind }) => [name, kind]).sort()).toEqual([
    ['call email API', 3],
    ['process event', 5],
    ['send', 5],
  ])
  for (const span of others) {
    expect([span.traceId, span.parentSpanId]).toEqual([root?.traceId, root?.spanId])
    expect(BigInt(span.endTimeUnixNano) >= BigInt(span.startTimeUnixNano)).toBe(true)
    expect(Math.abs(Number(BigInt(span.endTimeUnixNano) / 1_000_000n) - Date.now())).toBeLessThan(60_000)
  }
  expect(new Set(spans().map(({ spanId }) => spanId)).size).toBe(4)
  expect(posted.map(({ resource }) => [resource['service.name'], resource['oncehook.process']]).sort()).toEqual([
    ['mails', 'serve'],
    ['mails', 'worker'],
  ])
  expect(posted[0]).toMatchObject({ path: '/v1/traces', headers: { authorization: 'Bearer collector-token', 'x-tenant': 'a' } })
  const told = [...posted.map(({ text }) => text), ...processes.map((process) => process.output())].join('\n')
  for (const text of ['canary', 'example.com', 'collector-token', apiKey, ...Object.values(secrets)])
    expect(told.includes(text), text).toBe(false)
})

test('what rejects is passed on, and its span says of which kind the error was, not what it said', async () => {
  const { url, spans, posted } = await collector()
  const tracing = openTracing('worker', settings(url), quiet)

  const work = tracing.during({ name: 'send', request: 'r' }, () => Promise.reject(new TypeError('ada@example.com')))
  await expect(work).rejects.toThrow('ada@example.com')
  await tracing.stop()

  expect(spans()).toMatchObject([{ name: 'send', status: { code: 2 } }])
  expect(attributesOf(spans()[0]?.attributes ?? [])).toEqual({ 'error.type': 'TypeError' })
  expect(posted[0]?.text).not.toContain('ada@')
})

test('of a share all processes trace the same requests', async () => {
  const { url, spans } = await collector()
  const [serve, worker] = [openTracing('serve', settings(url, 0.5), quiet), openTracing('worker', settings(url, 0.5), quiet)]
  const none = openTracing('serve', settings(url, 0), quiet)
  for (let request = 0; request < 200; request += 1) {
    serve.received(`r${request}`, 0.01, {})
    none.received(`n${request}`, 0.01, {})
    await worker.during({ name: 'send', request: `r${request}` }, async () => undefined)
  }
  await Promise.all([serve.stop(), worker.stop(), none.stop()])

  const tracesOf = (wanted: string) =>
    spans()
      .filter(({ name }) => name === wanted)
      .map(({ traceId }) => traceId)
      .sort()
  expect(tracesOf('receive')).toEqual(tracesOf('send'))
  expect(tracesOf('receive').length).toBeGreaterThan(50)
  expect(tracesOf('receive').length).toBeLessThan(150)
})

test('I18 a collector that is away or refuses costs spans only, says so once, and what waits for it is bounded', async () => {
  const lines: string[] = []
  const log = { warn: (_facts: object, text: string) => lines.push(text) } as unknown as typeof quiet // it only warns
  const refusing = await collector(503)
  const [away, refused] = [
    openTracing('serve', settings('http://127.0.0.1:9'), log),
    openTracing('serve', settings(refusing.url), log),
  ]
  for (let request = 0; request < 10_000; request += 1) {
    away.received(`r${request}`, 0.01, {})
    refused.received(`r${request}`, 0.01, {})
  }

  await Promise.all([away.stop(), refused.stop()])

  expect(lines).toEqual(['spans not sent', 'spans not sent'])
  expect(refusing.spans().length).toBe(512)
  const answering = await collector()
  const full = openTracing('serve', settings(answering.url), quiet)
  for (let request = 0; request < 10_000; request += 1) full.received(`r${request}`, 0.01, {})
  await full.stop()
  expect(answering.spans().length).toBe(4_096)
})
