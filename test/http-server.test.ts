import { once } from 'node:events'
import type { RequestListener } from 'node:http'
import { connect, type Socket } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { type HttpServer, openHttpServer } from '../src/http-server.ts'

let server: HttpServer | undefined
let sockets: Socket[] = []

afterEach(async () => {
  for (const socket of sockets) socket.destroy()
  sockets = []
  await server?.close(0)
  server = undefined
})

const onError = (error: Error) => expect.unreachable(error.message)

async function open(handler: RequestListener, port = 0): Promise<number> {
  server = await openHttpServer(handler, { port, host: '127.0.0.1', onError })
  return server.port
}

async function connectTo(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1' })
  sockets.push(socket)
  await once(socket, 'connect')
  return socket
}

const GET = 'GET / HTTP/1.1\r\nHost: example.com\r\n\r\n'

/** All that comes until the connection ends. */
async function toEnd(socket: Socket): Promise<string> {
  let text = ''
  for await (const chunk of socket) text += chunk
  return text
}

test('a port is never shared with a second service, though it has several queues', async () => {
  const port = await open((_req, res) => res.end())

  const second = openHttpServer((_req, res) => res.end(), { port, host: '127.0.0.1', onError })

  await expect(second).rejects.toMatchObject({ code: 'EADDRINUSE' })
})

test('I18 of connections beyond two thousand each is closed at once, whichever queue it came by', async () => {
  const port = await open((_req, res) => res.end('ok'))

  const ends = await Promise.all(
    Array.from({ length: 2_020 }, async () => {
      const socket = await connectTo(port)
      socket.write(GET)
      return new Promise<string>((done) => {
        socket.on('error', () => undefined)
        socket.once('data', (chunk) => done(String(chunk).slice(0, 12)))
        socket.once('close', () => done('closed'))
      })
    }),
  )

  expect(ends.filter((end) => end === 'HTTP/1.1 200')).toHaveLength(2_000)
  expect(ends.filter((end) => end === 'closed')).toHaveLength(20)
})

test('a stop answers what is under way on each queue, and then none takes a connection', async () => {
  const held = Promise.withResolvers<void>()
  let running = 0
  const allRunning = Promise.withResolvers<void>()
  const port = await open((_req, res) => {
    running += 1
    if (running === 64) allRunning.resolve()
    void held.promise.then(() => res.end('done'))
  })
  const asked = await Promise.all(Array.from({ length: 64 }, () => connectTo(port)))
  for (const socket of asked) socket.write(GET)
  await allRunning.promise

  const closed = server?.close(60_000)
  const late = await Promise.allSettled(Array.from({ length: 64 }, () => connectTo(port)))
  held.resolve()
  const answers = await Promise.all(asked.map(toEnd))
  await closed

  expect(late.map(({ status }) => status)).toEqual(Array(64).fill('rejected'))
  expect(answers.every((answer) => answer.startsWith('HTTP/1.1 200') && answer.endsWith('done'))).toBe(true)
})
