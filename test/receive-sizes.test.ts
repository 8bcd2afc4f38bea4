import { once } from 'node:events'
import net from 'node:net'
import { promisify } from 'node:util'
import zlib from 'node:zlib'
import { beforeEach, describe, expect, test } from 'vitest'
import { testDatabase } from './support/database.ts'
import { BODY_H, BODY_H_MAC, countRows, emptyTables, ingest, signed, sources, storedEvents } from './support/posting.ts'

const database = await testDatabase()
const small = { ...sources.generic, maxBodyBytes: 1_000 }
const service = await ingest(
  database,
  { sources: { ...sources, small } },
  { requestTimeout: 300, headersTimeout: 300, connectionsCheckingInterval: 50 },
)
const { port, post, send } = service
const patient = await ingest(database)
const nothing = { events: 0, bodies: 0, conflicts: 0, jobs: 0, sends: 0 }
beforeEach(async () => {
  await emptyTables(database)
  service.logged.length = 0
})

const sized = (bytes: number) => `{"id":"s","x":"${'x'.repeat(bytes - 17)}"}`
const encoders: Record<string, (body: Buffer) => Promise<Buffer>> = {
  gzip: promisify(zlib.gzip),
  'x-gzip': promisify(zlib.gzip),
  deflate: promisify(zlib.deflate),
  br: promisify(zlib.brotliCompress),
}

describe('a compressed body', () => {
  test.each(Object.entries(encoders))(
    'C-05 %s is inflated once, and the signature is checked on the plain bytes',
    async (encoding, encode) => {
      const answer = await post('/webhooks/generic', await encode(BODY_H), {
        'content-encoding': encoding,
        'x-signature': BODY_H_MAC,
      })

      expect([answer.status, answer.json.status]).toEqual([200, 'accepted'])
      expect((await storedEvents(database)).map((event) => event.body)).toEqual([BODY_H])
    },
  )

  test('C-05 a signature over the compressed bytes is refused', async () => {
    const body = await promisify(zlib.gzip)(BODY_H)

    expect((await post('/webhooks/generic', body, { 'content-encoding': 'gzip', ...signed.generic(body) })).status).toBe(401)
  })

  test.each(Object.entries(encoders))('%s that is broken or cut off is a 400', async (encoding, encode) => {
    const whole = await encode(BODY_H)
    const headers = { 'content-encoding': encoding, 'x-signature': BODY_H_MAC }

    const answers = [
      await post('/webhooks/generic', whole.subarray(0, whole.length - 9), headers),
      await post('/webhooks/generic', Buffer.concat([Buffer.from('junk'), whole]), headers),
      await post('/webhooks/generic', BODY_H, headers),
    ]

    expect(answers.map((answer) => [answer.status, answer.json.code])).toEqual(Array(3).fill([400, 'broken_compression']))
    expect(await countRows(database)).toEqual(nothing)
  })

  test.each(['compress', 'zstd', 'gzip, gzip', 'constructor', '__proto__', 'toString', 'utf-8'])(
    'in the encoding %s is a 415',
    async (encoding) => {
      const answer = await post('/webhooks/generic', BODY_H, { 'content-encoding': encoding, 'x-signature': BODY_H_MAC })

      expect([answer.status, answer.json.code]).toEqual([415, 'unsupported_encoding'])
      expect(await countRows(database)).toEqual(nothing)
    },
  )

  test.each(['identity', 'GZIP', ' gzip '])('is known by its encoding in any case: %j', async (encoding) => {
    const body = encoding === 'identity' ? BODY_H : await promisify(zlib.gzip)(BODY_H)

    expect((await post('/webhooks/generic', body, { 'content-encoding': encoding, 'x-signature': BODY_H_MAC })).status).toBe(200)
  })

  test.each(Object.entries(encoders))('%s that inflates more than a hundredfold is a bomb: 413', async (encoding, encode) => {
    const bomb = sized(900_000)

    const answer = await post('/webhooks/generic', await encode(Buffer.from(bomb)), {
      'content-encoding': encoding,
      ...signed.generic(bomb),
    })

    expect([answer.status, answer.json.code]).toEqual([413, 'body_too_large'])
    expect(await countRows(database)).toEqual(nothing)
  })
})

describe('C-31 the size of a body', () => {
  test('5 MB from GitHub are stored', async () => {
    const body = sized(5 * 1024 * 1024)

    const answer = await patient.post('/webhooks/github', body, signed.github(body, 'g1'))

    expect([answer.status, answer.json.status]).toEqual([200, 'accepted'])
    expect((await storedEvents(database)).map((event) => event.body?.equals(Buffer.from(body)))).toEqual([true])
  })

  const ways: [string, (body: string) => ReturnType<typeof post>][] = [
    ['with a length', (body) => post('/webhooks/small', body, signed.generic(body))],
    ['in chunks', (body) => send('POST', '/webhooks/small', signed.generic(body), [body.slice(0, 400), body.slice(400)])],
    [
      'in gzip',
      async (body) =>
        post('/webhooks/small', await promisify(zlib.gzip)(body), { 'content-encoding': 'gzip', ...signed.generic(body) }),
    ],
  ]
  test.each(ways)('is taken at the limit and is a 413 one byte over it: %s', async (_name, postIt) => {
    const atLimit = await postIt(sized(1_000))
    const over = await postIt(sized(1_001))

    expect([atLimit.status, over.status, over.json.code]).toEqual([200, 413, 'body_too_large'])
    expect(over.headers['content-type']).toBe('application/problem+json; charset=utf-8')
    expect(over.text).not.toMatch(/\bat .*:\d+/)
    expect((await storedEvents(database)).map((event) => event.body?.length)).toEqual([1_000])
  })

  test('one byte over the 25 MB of GitHub is a 413 that its sender gets to read', async () => {
    const body = sized(25 * 1024 * 1024 + 1)

    const answers = []
    for (let count = 0; count < 3; count += 1)
      answers.push(await patient.post('/webhooks/github', body, signed.github(body, 'g1')))

    expect(answers.map((answer) => answer.status)).toEqual([413, 413, 413])
    expect(await countRows(database)).toEqual(nothing)
  })
})

describe('C-06 a client that goes away or stalls', () => {
  const head = (headers: string) =>
    `POST /webhooks/generic HTTP/1.1\r\nHost: localhost\r\nX-Signature: ${BODY_H_MAC}\r\n${headers}\r\n\r\n`

  /** Writes to a connection of its own and answers what came back until the service closed it. */
  async function talk(text: string, then: 'destroy' | 'end' | 'stall'): Promise<string> {
    const socket = net.connect(port, '127.0.0.1')
    let received = ''
    socket.on('data', (chunk) => {
      received += chunk.toString()
    })
    socket.on('error', () => undefined)
    await once(socket, 'connect')
    await new Promise<void>((written) => socket.write(text, () => written()))
    if (then === 'destroy') socket.destroy()
    if (then === 'end') socket.end()
    if (!socket.closed) await once(socket, 'close')
    return received
  }

  const gzipped = zlib.gzipSync(BODY_H).toString('latin1')
  const shapes: [string, string, 'destroy' | 'end' | 'stall'][] = [
    ['40 of 105 bytes, then cut', `${head('Content-Length: 105')}${BODY_H.subarray(0, 40)}`, 'destroy'],
    ['40 of 105 bytes, then closed', `${head('Content-Length: 105')}${BODY_H.subarray(0, 40)}`, 'end'],
    ['an unfinished chunk, then cut', `${head('Transfer-Encoding: chunked')}69\r\n{"id":`, 'destroy'],
    ['half a gzip body, then cut', `${head('Content-Encoding: gzip\r\nContent-Length: 90')}${gzipped.slice(0, 40)}`, 'destroy'],
    ['2684 of 2689 bytes, then nothing', `${head('Content-Length: 2689')}${sized(2_684)}`, 'stall'],
    ['gzip that never ends', `${head('Content-Encoding: gzip\r\nContent-Length: 90')}${gzipped.slice(0, 20)}`, 'stall'],
    ['two lengths', `${head('Content-Length: 105\r\nContent-Length: 10')}${BODY_H}`, 'stall'],
    ['a length and chunks', `${head('Content-Length: 105\r\nTransfer-Encoding: chunked')}${BODY_H}`, 'stall'],
  ]
  test.each(shapes)('leaves nothing behind: %s', async (_name, text, then) => {
    const received = await talk(text, then)

    if (then === 'stall') expect(received).toMatch(/^HTTP\/1\.1 (400|408) /)
    expect(await countRows(database)).toEqual(nothing)
    expect((await post('/webhooks/generic', BODY_H, { 'x-signature': BODY_H_MAC })).status).toBe(200)
    expect(service.logged.filter((line) => line.level !== 'info')).toEqual([])
  })
})
