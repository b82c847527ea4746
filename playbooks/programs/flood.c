/* A peer that floods: docs/programs.md. A frame is a message id (8 bytes), a topic (4), a length (4), a payload. */
#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 1 << 16 };
struct { uint64_t id; uint32_t topic, length; char payload[MOST]; } frame; /* in the network's byte order */
struct pollfd ends[1024]; /* standard input, the listener, and the links */
uint64_t seen[MOST];
int ends_count, seen_count;
char subscribed[MOST];

void add(int descriptor) { ends[ends_count++] = (struct pollfd){descriptor, POLLIN, 0}; }

void spread(int source) { /* it reports no duplicates */
    for (int i = 0; i < seen_count; i++) if (seen[i] == frame.id) return;
    seen[seen_count++] = frame.id;
    if (!source || subscribed[ntohl(frame.topic)])
        printf("%s %llu\n", source ? "deliver" : "publish", (unsigned long long)be64toh(frame.id));
    for (int i = 2; i < ends_count; i++) if (i != source) send(ends[i].fd, &frame, 16 + ntohl(frame.length), MSG_NOSIGNAL);
}

void receive(int link) {
    if (recv(ends[link].fd, &frame, 16, MSG_WAITALL) == 16 &&
        recv(ends[link].fd, frame.payload, ntohl(frame.length), MSG_WAITALL) == ntohl(frame.length)) spread(link);
    else { close(ends[link].fd); ends[link].fd = -1; } /* poll leaves it out */
}

void obey(void) {
    char line[1024], host[64];
    unsigned long long id; unsigned topic, number;
    struct sockaddr_in peer = {.sin_family = AF_INET};
    if (!fgets(line, sizeof line, stdin) || !strcmp(line, "stop\n")) exit(0);
    if (sscanf(line, "subscribe %u", &topic) == 1) subscribed[topic] = 1;
    if (sscanf(line, "unsubscribe %u", &topic) == 1) subscribed[topic] = 0;
    if (sscanf(line, "connect %*u %63s %u", host, &number) == 2) {
        int link = socket(AF_INET, SOCK_STREAM, 0);
        inet_pton(AF_INET, host, &peer.sin_addr); peer.sin_port = htons(number);
        if (!connect(link, (struct sockaddr *)&peer, sizeof peer)) add(link);
    }
    if (sscanf(line, "publish %llu %u %u", &id, &topic, &number) == 3) {
        frame.id = htobe64(id); frame.topic = htonl(topic); frame.length = htonl(number);
        memset(frame.payload, 0, number); memcpy(frame.payload, &frame.id, 8);
        spread(0);
    }
}

int main(void) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(atoi(getenv("TRELLIS_PORT")))};
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    inet_pton(AF_INET, getenv("TRELLIS_HOST"), &own.sin_addr);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) || listen(listener, 64)) return 1;
    setvbuf(stdin, NULL, _IONBF, 0); setvbuf(stdout, NULL, _IOLBF, 0); /* poll sees all of the input; whole lines go out */
    add(0); add(listener);
    puts("ready");
    while (poll(ends, ends_count, -1) > 0)
        for (int i = ends_count - 1; i >= 0; i--)
            if (ends[i].revents && ends[i].fd >= 0) { if (i == 0) obey(); else if (i == 1) add(accept(listener, 0, 0)); else receive(i); }
}
