import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { inspect } from 'node:util'
import { afterEach, expect, test } from 'vitest'
import { Inboxili, InboxiliConnectionError, InboxiliError } from '#inboxili'
import { type InboxiliSandbox, startInboxiliSandbox } from '../src/sandbox/inboxili.ts'

const apiKey = 'ik_live_test123'
const message = { to: 'ada@example.com', from_email: 'billing@example.com', subject: 'Receipt', html_body: '<p>Paid</p>' }
const answer = '{"status":"sent","message_id":"m1"}'
const closers: (() => Promise<unknown>)[] = []

afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

async function sandbox(): Promise<InboxiliSandbox> {
  const started = await startInboxiliSandbox({ apiKey })
  closers.push(started.close)
  return started
}

/** A server of bare sockets: `onRequest` runs once a whole request is there; what came stays readable. */
async function rawServer(onRequest: (socket: Socket) => void, onConnection: (socket: Socket) => void = () => undefined) {
  const sockets = new Set<Socket>()
  const received: string[] = []
  const server = createServer((socket) => {
    sockets.add(socket)
    const index = received.push('') - 1
    socket.on('error', () => undefined)
    onConnection(socket)
    socket.on('data', (data) => {
      received[index] += data.toString('latin1')
      if (/\r\n\r\n.*\}$/s.test(received[index] ?? '')) onRequest(socket)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closers.push(async () => {
    for (const socket of sockets) socket.destroy()
    server.close()
    await once(server, 'close')
  })
  const { port } = server.address() as AddressInfo
  return { port, baseUrl: `http://127.0.0.1:${port}`, received }
}

function http(statusLine: string, body: string, headers = ''): string {
  return `HTTP/1.1 ${statusLine}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`
}

/** A server that gives each request the same bytes for an answer. */
const answering = (bytes: string) => rawServer((socket) => socket.end(bytes))

function client(baseUrl: string, options: { timeout?: number; maxRetries?: number } = {}): Inboxili {
  return new Inboxili(apiKey, { baseUrl, timeout: 2000, maxRetries: 0, ...options })
}

async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => expect.unreachable(`resolved with ${inspect(value)}`),
    (error: unknown) => error,
  )
}

test('A send is one POST with the key as a bearer token, the message as JSON and a connection of its own', async () => {
  const { baseUrl, received } = await answering(http('200 OK', answer))
  const inboxili = client(baseUrl)

  const results = [await inboxili.emails.send(message), await inboxili.emails.send(message)]

  expect(results).toEqual([
    { status: 'sent', message_id: 'm1' },
    { status: 'sent', message_id: 'm1' },
  ])
  expect(received).toHaveLength(2)
  expect(received[0]).toMatch(/^POST \/api\/v1\/transactional\/send HTTP\/1\.1\r\n/)
  expect(received[0]).toMatch(/\r\nauthorization: Bearer ik_live_test123\r\n/i)
  expect(received[0]).toMatch(/\r\ncontent-type: application\/json\r\n/i)
  expect(received[0]).toMatch(/\r\nconnection: close\r\n/i)
  expect(received[0]?.split('\r\n\r\n')[1]).toBe(
    '{"to":"ada@example.com","from_email":"billing@example.com","subject":"Receipt","html_body":"<p>Paid</p>"}',
  )
})

test('C-55 message_id null is returned as null', async () => {
  const { baseUrl } = await answering(http('200 OK', '{"status":"sent","message_id":null}'))

  const result = await client(baseUrl).emails.send(message)

  expect(result).toEqual({ status: 'sent', message_id: null })
})

test('A 2xx with another status is returned as it is, with its message_id', async () => {
  const { baseUrl } = await answering(http('202 Accepted', '{"status":"scheduled","message_id":"m9","more":1}'))

  const result = await client(baseUrl).emails.send(message)

  expect(result).toEqual({ status: 'scheduled', message_id: 'm9' })
})

test('An unknown field is refused before any call', async () => {
  const { baseUrl, received } = await answering(http('200 OK', answer))
  const wrong = { ...message, cc: 'eve@example.com' }

  const error = await failureOf(client(baseUrl).emails.send(wrong))

  expect(error).toBeInstanceOf(InboxiliError)
  expect(error).toMatchObject({ status: 422, code: 'validation_error', message: expect.stringContaining('cc') })
  expect(received).toEqual([])
})

test.for([
  ['401 Unauthorized', 401, 'unauthorized'],
  ['403 Forbidden', 403, 'forbidden'],
  ['422 Unprocessable Content', 422, 'sender_not_verified'],
  ['500 Internal Server Error', 500, 'internal'],
] as const)('C-56 %s becomes an InboxiliError with its code and message', async ([line, status, code]) => {
  const { baseUrl, received } = await answering(http(line, `{"error":{"code":"${code}","message":"nope"}}`))

  const error = await failureOf(client(baseUrl, { maxRetries: 2 }).emails.send(message))

  expect(error).toBeInstanceOf(InboxiliError)
  expect(error).toMatchObject({ status, code, message: 'nope' })
  expect(received).toHaveLength(1)
})

test.for(['502 Bad Gateway', '503 Service Unavailable', '504 Gateway Timeout'])(
  'C-53 %s with an HTML page is called once',
  async (line) => {
    const { baseUrl, received } = await answering(http(line, '<html>bad gateway</html>'))

    const error = await failureOf(client(baseUrl, { maxRetries: 2 }).emails.send(message))

    expect(error).toBeInstanceOf(InboxiliError)
    expect(error).toMatchObject({ status: Number(line.slice(0, 3)), code: 'http_error' })
    expect(received).toHaveLength(1)
  },
)

test('C-54 429 is repeated as often as maxRetries says, and then sends once', async () => {
  const inboxili = await sandbox()
  inboxili.arm([
    { kind: 'rate_limited', retryAfter: 0 },
    { kind: 'rate_limited', retryAfter: 0 },
    { kind: 'ok', messageId: 'm5' },
  ])

  const result = await client(inboxili.url, { maxRetries: 2 }).emails.send(message)

  expect(result).toEqual({ status: 'sent', message_id: 'm5' })
  expect(inboxili.ledger.map((call) => [call.answer, call.accepted])).toEqual([
    [429, false],
    [429, false],
    [200, true],
  ])
})

test('C-54 a repeat waits as long as Retry-After says', async () => {
  const inboxili = await sandbox()
  inboxili.arm({ kind: 'rate_limited', retryAfter: 1 })

  await client(inboxili.url, { maxRetries: 1 }).emails.send(message)

  const [first, second] = inboxili.ledger
  expect((second?.atMs ?? 0) - (first?.atMs ?? 0)).toBeGreaterThanOrEqual(990)
})

test('C-54 429 without retries left is thrown with the raw Retry-After', async () => {
  const { baseUrl, received } = await answering(
    http(
      '429 Too Many Requests',
      '{"error":{"code":"rate_limited","message":"slow"}}',
      'retry-after: Wed, 21 Oct 2026 07:28:00 GMT\r\n',
    ),
  )

  const error = await failureOf(client(baseUrl).emails.send(message))

  expect(error).toMatchObject({ status: 429, code: 'rate_limited', retryAfter: 'Wed, 21 Oct 2026 07:28:00 GMT' })
  expect(received).toHaveLength(1)
})

test('C-54 a Retry-After of a day is thrown rather than waited for', async () => {
  const inboxili = await sandbox()
  inboxili.arm({ kind: 'rate_limited', retryAfter: 99999 }, { times: 'always' })

  const error = await failureOf(client(inboxili.url, { maxRetries: 2 }).emails.send(message))

  expect(error).toMatchObject({ status: 429, retryAfter: '99999' })
  expect(inboxili.requests).toBe(1)
})

test('A redirect is an error and is not followed', async () => {
  const target = await answering(http('200 OK', answer))
  const { baseUrl } = await answering(http('307 Temporary Redirect', '', `location: ${target.baseUrl}/\r\n`))

  const error = await failureOf(client(baseUrl).emails.send(message))

  expect(error).toBeInstanceOf(InboxiliError)
  expect(error).toMatchObject({ status: 307 })
  expect(target.received).toEqual([])
})

test.for([
  ['broken JSON', '{"status":"sent","message_'],
  ['an HTML page', '<html></html>'],
  ['no body', ''],
  ['no status', '{"message_id":"m1"}'],
  ['a numeric message_id', '{"status":"sent","message_id":42}'],
  ['a list', '[]'],
] as const)('A 200 with %s is unreadable', async ([, body]) => {
  const { baseUrl } = await answering(http('200 OK', body))

  const error = await failureOf(client(baseUrl).emails.send(message))

  expect(error).toBeInstanceOf(InboxiliError)
  expect(error).toMatchObject({ status: 200, code: 'unreadable_answer' })
})

test('An answer of 64 KiB is read, one byte more is unreadable', async () => {
  const full = answer + ' '.repeat(64 * 1024 - answer.length)
  const fits = await answering(http('200 OK', full))
  const tooLong = await answering(http('200 OK', `${full} `))

  const result = await client(fits.baseUrl).emails.send(message)
  const error = await failureOf(client(tooLong.baseUrl).emails.send(message))

  expect(result).toEqual({ status: 'sent', message_id: 'm1' })
  expect(error).toMatchObject({ status: 200, code: 'unreadable_answer' })
})

test('An answer without end is unreadable, and is not read to its deadline', async () => {
  const { baseUrl } = await rawServer((socket) => {
    socket.write(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10400\r\n${'x'.repeat(0x10400)}\r\n`)
  })

  const error = await failureOf(client(baseUrl, { timeout: 60_000 }).emails.send(message))

  expect(error).toMatchObject({ status: 200, code: 'unreadable_answer' })
})

test('C-52 a server that never answers ends the call at its deadline, after one request', async () => {
  const { baseUrl, received } = await rawServer(() => undefined)

  const error = await failureOf(client(baseUrl, { timeout: 200, maxRetries: 2 }).emails.send(message))

  expect(error).toBeInstanceOf(InboxiliConnectionError)
  expect(error).toMatchObject({ message: 'no answer in 0.2 s', code: 'timeout', requestStarted: true })
  expect(received).toHaveLength(1)
})

test('C-52 the deadline covers the body of the answer, even when it trickles', async () => {
  const { baseUrl } = await rawServer((socket) => {
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{')
    const timer = setInterval(() => socket.write(' '), 20)
    socket.on('close', () => clearInterval(timer))
  })

  const error = await failureOf(client(baseUrl, { timeout: 200 }).emails.send(message))

  expect(error).toMatchObject({ message: 'no answer in 0.2 s', code: 'timeout', requestStarted: true })
})

test.for([
  ['closed without an answer', (socket: Socket) => socket.destroy()],
  ['reset without an answer', (socket: Socket) => socket.resetAndDestroy()],
  ['closed in the middle of the head', (socket: Socket) => socket.end('HTTP/1.1 200 O')],
  ['closed in the middle of the body', (socket: Socket) => socket.end(`HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n${answer}`)],
  ['closed in the middle of a 422', (socket: Socket) => socket.end('HTTP/1.1 422 No\r\ncontent-length: 100\r\n\r\n{"error":')],
  ['answered with garbage', (socket: Socket) => socket.end('hello there\r\n\r\n')],
] as const)('A connection %s is a connection error after the request', async ([, onRequest]) => {
  const { baseUrl, received } = await rawServer(onRequest)

  const error = await failureOf(client(baseUrl, { maxRetries: 2 }).emails.send(message))

  expect(error).toBeInstanceOf(InboxiliConnectionError)
  expect(error).toMatchObject({ requestStarted: true })
  expect(received).toHaveLength(1)
})

test('A refused connection precedes the request', async () => {
  const { port } = await rawServer(() => undefined)
  await closers.pop()?.()

  const error = await failureOf(client(`http://127.0.0.1:${port}`).emails.send(message))

  expect(error).toBeInstanceOf(InboxiliConnectionError)
  expect(error).toMatchObject({ message: 'connection refused', code: 'ECONNREFUSED', requestStarted: false })
})

test('A connection refused on every address of a name precedes the request', async () => {
  const { port } = await rawServer(() => undefined)
  await closers.pop()?.()

  const error = await failureOf(client(`http://localhost:${port}`).emails.send(message))

  expect(error).toMatchObject({ code: 'ECONNREFUSED', requestStarted: false, cause: { code: 'ECONNREFUSED' } })
})

test('A host name that does not resolve precedes the request', async () => {
  const error = await failureOf(client('http://nothing.invalid').emails.send(message))

  expect(error).toBeInstanceOf(InboxiliConnectionError)
  expect(error).toMatchObject({ code: expect.stringMatching(/^(ENOTFOUND|EAI_AGAIN)$/), requestStarted: false })
})

test('A failed TLS handshake precedes the request', async () => {
  const { port, received } = await rawServer(
    () => undefined,
    (socket) => socket.end('this is not TLS\r\n'),
  )

  const error = await failureOf(client(`https://127.0.0.1:${port}`).emails.send(message))

  expect(error).toBeInstanceOf(InboxiliConnectionError)
  expect(error).toMatchObject({ code: expect.stringMatching(/^(ERR_SSL_|EPROTO)/), requestStarted: false })
  expect(received.join('')).not.toContain('POST')
})

test('A TLS handshake that hangs ends as a connect timeout, before the request', async () => {
  const { port, received } = await rawServer(() => undefined)

  const error = await failureOf(client(`https://127.0.0.1:${port}`, { timeout: 200 }).emails.send(message))

  expect(error).toBeInstanceOf(InboxiliConnectionError)
  expect(error).toMatchObject({ requestStarted: false })
  expect(received.join('')).not.toContain('POST')
})

test('C-70 an API key that the answer echoes is in no part of the error', async () => {
  const body = JSON.stringify({ error: { code: `bad ${apiKey}`, message: `header was: Bearer ${apiKey} ${'x'.repeat(600)}` } })
  const { baseUrl } = await answering(http('422 Unprocessable Content', body, `retry-after: ${apiKey}\r\n`))

  const error = await failureOf(client(baseUrl).emails.send(message))

  expect(error).toMatchObject({ status: 422, code: 'bad [redacted]', retryAfter: '[redacted]' })
  expect((error as InboxiliError).message).toHaveLength(500)
  expect((error as InboxiliError).message).toMatch(/^header was: Bearer \[redacted\] x+$/)
  expect(inspect(error, { depth: Number.POSITIVE_INFINITY, showHidden: true })).not.toContain(apiKey)
})

test('C-70 an API key cut by the 500 characters leaves no part of itself', async () => {
  const body = JSON.stringify({ error: { code: 'send_failed', message: 'x'.repeat(490) + apiKey } })
  const { baseUrl } = await answering(http('422 Unprocessable Content', body))

  const error = await failureOf(client(baseUrl).emails.send(message))

  expect((error as InboxiliError).message).toBe(`${'x'.repeat(490)}[redacted]`)
})

test.for([
  ['echoes it in bytes that are not HTTP', (socket: Socket) => socket.end(`nonsense ${apiKey}\r\n\r\n`)],
  ['resets the connection', (socket: Socket) => socket.resetAndDestroy()],
  ['never answers', () => undefined],
] as const)('C-70 the API key is in no part of the error when the server %s', async ([, onRequest]) => {
  const { baseUrl } = await rawServer(onRequest)

  const error = await failureOf(client(baseUrl, { timeout: 200 }).emails.send(message))

  expect(error).toBeInstanceOf(InboxiliConnectionError)
  expect(inspect(error, { depth: Number.POSITIVE_INFINITY, showHidden: true })).not.toContain(apiKey)
})

test('C-70 the client shows its key to nobody', () => {
  const inboxili = new Inboxili(apiKey)

  expect(inspect(inboxili, { depth: Number.POSITIVE_INFINITY, showHidden: true })).not.toContain(apiKey)
  expect(JSON.stringify(inboxili)).not.toContain(apiKey)
})

test.for(['', 'with space', 'line\nbreak', 'ümlaut'])('C-70 an unusable API key is refused without being shown: %j', (key) => {
  expect(() => new Inboxili(key)).toThrow(new TypeError('apiKey must be visible ASCII characters'))
})

test('takes a base URL with or without the path of the API', async () => {
  const { url } = await sandbox()
  for (const suffix of ['', '/', '/api/v1', '/api/v1/']) {
    await expect(client(url + suffix).emails.send(message)).resolves.toMatchObject({ status: 'sent' })
  }
})
