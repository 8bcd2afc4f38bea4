import { once } from 'node:events'
import net, { type AddressInfo } from 'node:net'
import { afterAll } from 'vitest'

export interface Line {
  url: string
  /** The next answer of the database, to whatever, is lost with its connection. */
  loseNextAnswer(): void
  /**
   * Waits for the next transaction with a statement of this text or name, and loses the answer to its commit, with the connection.
   * Resolves when the database has committed and nobody has been told, after `meanwhile`.
   */
  loseCommitOf(statement: RegExp, meanwhile?: () => unknown): Promise<void>
  /** Loses nothing more. */
  mend(): void
}

/** A way to the database on which the answer to a statement can be lost, with the connection. */
export async function lineTo(databaseUrl: string): Promise<Line> {
  const url = new URL(databaseUrl)
  let isLosing = false
  let awaited: { statement: RegExp; meanwhile: () => unknown; done(): void } | undefined
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(url.port), url.hostname)
    const said = listener()
    let losing: typeof awaited
    for (const socket of [client, upstream]) socket.on('error', () => undefined)
    client.on('data', (bytes) => {
      said.hear(bytes)
      if (awaited && said.commits(awaited.statement)) {
        losing = awaited
        awaited = undefined
      }
      upstream.write(bytes)
    })
    client.on('end', () => upstream.end())
    upstream.on('data', (answer) => {
      if (!isLosing && !losing) return void client.write(answer)
      isLosing = false
      const { meanwhile, done } = losing ?? {}
      losing = undefined
      meanwhile?.()
      client.destroy()
      upstream.end()
      done?.()
    })
    upstream.on('close', () => client.destroy())
    client.on('close', () => upstream.end())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  afterAll(() => void server.close())
  const port = String((server.address() as AddressInfo).port)
  return {
    url: Object.assign(new URL(url), { hostname: '127.0.0.1', port }).href,
    loseNextAnswer: () => {
      isLosing = true
    },
    mend: () => {
      isLosing = false
      awaited = undefined
    },
    loseCommitOf: (statement, meanwhile = () => undefined) =>
      new Promise((done) => {
        awaited = { statement, meanwhile, done }
      }),
  }
}

/** A way to an HTTP server on which half of a request can be lost, with the connection. */
export async function halfLineTo(
  serverUrl: string,
): Promise<{ url: string; loseHalf(meanwhile?: () => unknown): Promise<void> }> {
  const { port, hostname } = new URL(serverUrl)
  let awaited: { meanwhile: () => unknown; done(): void } | undefined
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(port), hostname)
    for (const socket of [client, upstream]) socket.on('error', () => undefined)
    client.on('data', (bytes) => {
      if (!awaited) return void upstream.write(bytes)
      const { meanwhile, done } = awaited
      awaited = undefined
      // Nor does anybody hear what the server thinks of half a request.
      upstream.removeAllListeners('data').resume()
      upstream.end(bytes.subarray(0, bytes.length / 2))
      upstream.once('close', () => {
        meanwhile()
        client.destroy()
        done()
      })
    })
    upstream.on('data', (answer) => client.write(answer))
    upstream.on('close', () => client.destroy())
    client.on('close', () => upstream.end())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  afterAll(() => void server.close())
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    loseHalf: (meanwhile = () => undefined) =>
      new Promise((done) => {
        awaited = { meanwhile, done }
      }),
  }
}

/** Follows what a client says to PostgreSQL: the statements of its transaction, and whether it has just asked for the commit. */
function listener() {
  let unread = Buffer.alloc(0)
  let isStarted = false
  /** Texts of the prepared statements, by their names. */
  const prepared = new Map<string, string>()
  let statements: string[] = []
  let isOpen = false
  let isCommitting = false

  const message = (type: string, body: Buffer) => {
    const [first = '', second = ''] = body.toString('latin1').split('\0', 2)
    if (type === 'P') prepared.set(first, `${first} ${second}`)
    // A portal comes before the name of its statement.
    if (type === 'B') statements.push(prepared.get(second) ?? second)
    if (type === 'Q' && /^begin/i.test(first)) {
      statements = []
      isOpen = true
    } else if (type === 'Q' && /^commit/i.test(first)) {
      isCommitting = true
      isOpen = false
    } else if (type === 'Q' && /^rollback$/i.test(first)) isOpen = false
    else if (type === 'Q') statements.push(first)
    // A statement outside of a transaction is one by itself.
    if (type === 'S' && !isOpen) isCommitting = true
  }
  return {
    hear(bytes: Buffer) {
      if (isCommitting) statements = []
      isCommitting = false
      unread = Buffer.concat([unread, bytes])
      for (;;) {
        // The first message of a connection has no type.
        const head = isStarted ? 1 : 0
        if (unread.length < head + 4) return
        const length = head + unread.readInt32BE(head)
        if (unread.length < length) return
        if (isStarted) message(unread.toString('latin1', 0, 1), unread.subarray(5, length))
        isStarted = true
        unread = unread.subarray(length)
      }
    },
    commits: (statement: RegExp) => isCommitting && statements.some((it) => statement.test(it)),
  }
}
