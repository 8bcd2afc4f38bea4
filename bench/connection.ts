import { connect, type Socket } from 'node:net'

export interface Answer {
  status: number
  /** The connection can't be used again. */
  closes: boolean
}

/** One connection that is kept alive: a request at a time, written as the bytes that it is made of. */
export interface Connection {
  send(request: Buffer): void
  close(): void
}

/** Opens a connection; `onEnd` is told once, when it is over, whether an answer was still awaited. */
export function openConnection(
  port: number,
  onAnswer: (answer: Answer) => void,
  onEnd: (wasWaiting: boolean) => void,
): Connection {
  const socket: Socket = connect({ port, host: '127.0.0.1', noDelay: true })
  let text = ''
  let isWaiting = false
  let isOver = false
  const end = () => {
    if (isOver) return
    isOver = true
    onEnd(isWaiting)
  }
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1')
    const head = text.indexOf('\r\n\r\n')
    if (head < 0) return
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(text)?.[1] ?? 0)
    if (text.length < head + 4 + length) return
    const answer = { status: Number(text.slice(9, 12)), closes: /\r\nconnection: close/i.test(text) }
    text = ''
    isWaiting = false
    onAnswer(answer)
  })
  socket.on('error', end)
  socket.on('close', end)
  return {
    send(request) {
      isWaiting = true
      socket.write(request)
    },
    close: () => void socket.destroy(),
  }
}
