import { once } from 'node:events'
import net, { type AddressInfo } from 'node:net'
import { afterAll } from 'vitest'

/** A way to the database on which the answer to a statement can be lost, with the connection. */
export async function lineTo(databaseUrl: string): Promise<{ url: string; loseNextAnswer(): void }> {
  const url = new URL(databaseUrl)
  let isLosing = false
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(url.port), url.hostname)
    for (const socket of [client, upstream]) socket.on('error', () => undefined)
    client.pipe(upstream)
    upstream.on('data', (answer) => {
      if (!isLosing) return void client.write(answer)
      isLosing = false
      client.destroy()
      upstream.end()
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
  }
}
