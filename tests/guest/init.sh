#!/bin/busybox sh
# The first program of a guest: finds its root, and starts what obeys the host in it.
export PATH=/bin
busybox mount -t proc proc /proc
busybox --install -s /bin
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec >/dev/console 2>&1
while read -r module; do insmod "/modules/$module"; done </order
mount -t ext4 -o ro /dev/vda /lower || { echo "guest: no root"; poweroff -f; }
mkdir -p /rw /new
mount -t tmpfs -o size=75% tmpfs /rw
mkdir /rw/upper /rw/work
mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work overlay /new
cp /agent.py /new/agent.py
mount -t ext4 -o ro /dev/vdb /new/usr/lib/modules
ip link set lo up
hostname guest
mount --move /dev /new/dev
mount --move /proc /new/proc
mount --move /sys /new/sys
cd /new
mkdir -p dev/pts dev/shm run tmp work
mount -t devpts devpts dev/pts
mount -t tmpfs shm dev/shm
mount -t tmpfs run run
exec switch_root -c /dev/console /new /usr/bin/python3 -I -S /agent.py
